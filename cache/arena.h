// Arena: address space for the blocks of a pool. The system backs it with memory at first touch, and takes that memory
// back when a range is discarded: so two pools can each be laid out for the whole of one byte budget.
#pragma once

#include <cstddef>
#include <cstdint>

namespace invar::cache {

// Threads: as its owner.
class Arena {
 public:
  // Errors stop the process: address space for `bytes` is not to be had. 0 bytes: no memory.
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  // The whole memory pages inside [offset, offset + bytes) go back to the system and read as zero from now on; the
  // bytes around them in half-covered pages keep their values.
  void Discard(int64_t offset, int64_t bytes);

 private:
  // Set at construction.
  std::byte* data_ = nullptr;
  const int64_t bytes_;
};

}  // namespace invar::cache
