// The size of the last-level cache is what the kernel says of the first processor's caches, the largest of them.
#include "kernels/cpu/big_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/check.h"

namespace invar::kernels::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

int64_t LastLevelCacheBytes() {
  int64_t largest = 0;
  for (int index = 0;; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    std::string size;  // "266240K"
    if (!(file >> size)) return largest;
    const int64_t unit = size.back() == 'M' ? 1 << 20 : 1 << 10;
    largest = std::max(largest, std::strtol(size.c_str(), nullptr, 10) * unit);
  }
}

int64_t UncachedBytes() { return std::max(int64_t{512} << 20, 4 * LastLevelCacheBytes()); }

BigMemory::BigMemory(const int64_t bytes) : mapped_bytes_(bytes + kHugePage), bytes_(bytes) {
  mapped_ =
      mmap(nullptr, static_cast<size_t>(mapped_bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Check(mapped_ != MAP_FAILED, "memory for a measurement", bytes);
  const auto address = reinterpret_cast<uintptr_t>(mapped_);
  data_ = static_cast<std::byte*>(mapped_) + (kHugePage - address % kHugePage) % kHugePage;
  madvise(data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // Fails without harm: small pages then.
  std::memset(data_, 0, static_cast<size_t>(bytes));
}

BigMemory::~BigMemory() { munmap(mapped_, static_cast<size_t>(mapped_bytes_)); }

}  // namespace invar::kernels::cpu
