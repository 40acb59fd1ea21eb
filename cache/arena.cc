// Anonymous mappings without reserve: the budget counts what is touched, not what is laid out.
#include "cache/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

namespace invar::cache {
namespace {

// Smaller ones are tests' and toys': a huge page would be most of them.
constexpr int64_t kHugePageFrom = int64_t{64} << 20;

}  // namespace

Arena::Arena(const int64_t bytes) : bytes_(bytes) {
  Check(bytes >= 0, "an arena has no negative size", bytes);
  if (bytes == 0) return;
  void* const mapped = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  Check(mapped != MAP_FAILED, "the system gives address space for the KV budget; lower engine.kv_budget", bytes);
  data_ = static_cast<std::byte*>(mapped);
  // A state of 20 MB that is written for the first time costs thousands of page faults otherwise, a tenth of a decode
  // step. Where the system has no huge pages it stays as it was.
  if (bytes >= kHugePageFrom) madvise(mapped, static_cast<size_t>(bytes), MADV_HUGEPAGE);
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

void Arena::Discard(const int64_t offset, const int64_t bytes) {
  if (data_ == nullptr) return;
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t begin = (offset + page - 1) / page * page;
  const int64_t end = (offset + bytes) / page * page;
  if (begin < end) madvise(data_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

}  // namespace invar::cache
