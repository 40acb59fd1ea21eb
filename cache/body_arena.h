// BodyArena: memory for the bodies of one sequence's views, on huge pages where the system gives them. Attention reads
// a body from end to end at every step, and each body is smaller than a huge page: so all layers of a sequence share
// them, one after another.
//
//   region, whole huge pages | block of a layer | block | free | block | ... free, untouched |
//
// The first free place that is large enough is taken, in regions by age and from their beginning, so what is touched
// stays together; neighbours that are free become one; a region without blocks goes back to the system. Blocks below
// kLeastBlock are toys' and tests': they come from the heap, as a huge page would be most of them.
// What lies where changes no bits. While views are made, a second one holds the float copies of the rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <vector>

#include "base/mutex.h"

namespace invar::cache {

class BodyArena final : public std::pmr::memory_resource {
 public:
  static constexpr int64_t kLeastBlock = int64_t{32} << 10;

  BodyArena() = default;
  // Requires: every block came back.
  ~BodyArena() override;
  BodyArena(const BodyArena&) = delete;
  BodyArena& operator=(const BodyArena&) = delete;

  // Of blocks in regions, whole memory pages; and from the start of each region to the end of its last block, which is
  // what the system may have had to give.
  int64_t used_bytes() const;
  int64_t reached_bytes() const;
  // Recounts every region. Stops the process.
  void CheckIntegrity() const;

 private:
  struct Region {
    std::byte* base = nullptr;
    int64_t bytes = 0;
    std::map<int64_t, int64_t> free = {};  // Offset to bytes; no two of them touch.
  };

  // Threads: any. Errors stop the process: no address space.
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* block, size_t bytes, size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  mutable Mutex mu_;
  std::vector<Region> regions_ GUARDED_BY(mu_);
};

}  // namespace invar::cache
