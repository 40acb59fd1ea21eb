// Resident memory stays within the budget: before a block without memory is taken, the other pool's free blocks give
// theirs back.
#include "cache/cache_memory.h"

#include <algorithm>

#include "base/check.h"

namespace invar::cache {
namespace {

int32_t CountIn(const int64_t budget_bytes, const int64_t block_bytes, const int64_t without_bytes) {
  return static_cast<int32_t>(
      std::min<int64_t>(block_bytes > 0 ? budget_bytes / block_bytes : without_bytes, INT32_MAX));
}

}  // namespace

CacheMemory::CacheMemory(const StateShape& shape, const int64_t budget_bytes, const int32_t slots_without_bytes,
                         const Backing backing)
    : budget_bytes_(budget_bytes),
      pages_(CountIn(budget_bytes, shape.page_bytes, 0), shape.page_bytes, backing),
      slots_(CountIn(budget_bytes, shape.state_bytes, slots_without_bytes), shape.state_bytes, backing) {}

template <typename Id, typename OtherId>
std::optional<BlockRef<Id>> CacheMemory::Take(BlockPool<Id>& pool, BlockPool<OtherId>& other, const Fill fill) {
  if (used_bytes() + pool.block_bytes() > budget_bytes_) return std::nullopt;
  if (pool.warm_count() == 0 && other.block_bytes() > 0) {
    const int64_t resident = used_bytes() + Bytes(pages_.warm_count(), slots_.warm_count());
    const int64_t excess = resident + pool.block_bytes() - budget_bytes_;
    if (excess > 0) other.Discard(static_cast<int32_t>((excess + other.block_bytes() - 1) / other.block_bytes()));
  }
  return pool.Take(fill);
}

template std::optional<PageRef> CacheMemory::Take(PagePool&, SlotPool&, Fill);
template std::optional<SlotRef> CacheMemory::Take(SlotPool&, PagePool&, Fill);

void CacheMemory::CheckIntegrity() const {
  pages_.CheckIntegrity();
  slots_.CheckIntegrity();
  Check(used_bytes() <= budget_bytes_, "the budget is kept", used_bytes(), budget_bytes_);
}

}  // namespace invar::cache
