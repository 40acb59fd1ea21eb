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
    : budget_bytes_max_(budget_bytes),
      budget_bytes_(budget_bytes),
      pages_(CountIn(budget_bytes, shape.page_bytes, 0), shape.page_bytes, backing),
      slots_(CountIn(budget_bytes, shape.state_bytes, slots_without_bytes), shape.state_bytes, backing) {}

ByteClaim::~ByteClaim() {
  if (memory_ != nullptr) memory_->reserved_bytes_ -= bytes_;
}

void CacheMemory::SetBudget(const int64_t bytes) {
  Check(bytes >= used_bytes() && bytes <= budget_bytes_max_, "a budget holds what is used, and the pools hold a budget",
        bytes, used_bytes());
  budget_bytes_ = bytes;
  Trim(pages_, 0);
  Trim(slots_, 0);
}

std::optional<ByteClaim> CacheMemory::Reserve(const int64_t bytes) {
  if (used_bytes() + bytes > budget_bytes_) return std::nullopt;
  reserved_bytes_ += bytes;
  Trim(pages_, 0);
  Trim(slots_, 0);
  return ByteClaim(this, bytes);
}

// Free blocks of `pool` give up memory until `more` bytes fit beside all that is resident, or none has any left.
template <typename Id>
void CacheMemory::Trim(BlockPool<Id>& pool, const int64_t more) {
  if (pool.block_bytes() == 0) return;
  const int64_t resident = used_bytes() + Bytes(pages_.warm_count(), slots_.warm_count());
  const int64_t excess = resident + more - budget_bytes_;
  if (excess > 0) pool.Discard(static_cast<int32_t>((excess + pool.block_bytes() - 1) / pool.block_bytes()));
}

template <typename Id, typename OtherId>
std::optional<BlockRef<Id>> CacheMemory::Take(BlockPool<Id>& pool, BlockPool<OtherId>& other, const Fill fill) {
  if (used_bytes() + pool.block_bytes() > budget_bytes_) return std::nullopt;
  if (pool.warm_count() == 0) Trim(other, pool.block_bytes());
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
