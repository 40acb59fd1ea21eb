// Memory no cache holds: what is read from it comes from DRAM.
#pragma once

#include <cstddef>
#include <cstdint>

namespace invar::kernels::cpu {

// Bytes of the largest cache of the first processor; 0 where the system does not tell.
int64_t LastLevelCacheBytes();

// What a measurement of memory must walk through so that nothing of it is still cached when it comes by again: four
// times the last-level cache (caches of today do not evict in order: of twice their size they keep a fifth), at least
// 512 MiB.
int64_t UncachedBytes();

// Anonymous memory, on huge pages where the system gives them.
class BigMemory {
 public:
  // Touches every page. Ends the process where there is not enough memory.
  explicit BigMemory(int64_t bytes);
  ~BigMemory();
  BigMemory(const BigMemory&) = delete;
  BigMemory& operator=(const BigMemory&) = delete;

  std::byte* data() const { return data_; }  // 2 MiB aligned.
  int64_t bytes() const { return bytes_; }

 private:
  void* mapped_;
  int64_t mapped_bytes_;
  std::byte* data_;
  int64_t bytes_;
};

}  // namespace invar::kernels::cpu
