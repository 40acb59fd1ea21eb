// MappedRange: addresses that parts of a file are mapped into, so that what lies apart in the file is read side by
// side, where the page cache has it. Reading what it does not have would wait for the disk, and end the process where
// the disk fails: so whoever reads asks first. Threads: any, while nothing is mapped.
#pragma once

#include <cstddef>
#include <cstdint>

namespace invar::engine {

class MappedRange {
 public:
  MappedRange() = default;
  // Takes addresses alone; nothing can be read there yet. No addresses left: it is empty.
  explicit MappedRange(int64_t bytes);
  ~MappedRange();
  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&& other) noexcept;

  std::byte* data() const { return data_; }

  // Of mapped bytes at whole blocks. Whether reading them takes nothing from the disk.
  bool IsInMemory(const std::byte* at, int64_t bytes) const;

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace invar::engine
