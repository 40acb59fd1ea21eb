// Blocks are zeroed when taken, not when freed: a model finds zero state at position 0, and an idle pool costs nothing.
#include "cache/block_pool.h"

#include <cstring>

#include "base/check.h"

namespace invar::cache {

template <typename Id>
BlockPool<Id>::BlockPool(const int32_t count, const int64_t block_bytes, const FreedMemory freed)
    : count_(count),
      block_bytes_(block_bytes),
      freed_(freed),
      arena_(new (std::align_val_t{64}) std::byte[static_cast<size_t>(count) * block_bytes]),
      taken_(count, false) {
  Check(count >= 0 && block_bytes >= 0, "a pool has no negative size", count, block_bytes);
  free_.reserve(count);
  for (int32_t id = count - 1; id >= 0; --id) free_.push_back(id);
}

template <typename Id>
BlockPool<Id>::~BlockPool() {
  Check(free_.size() == static_cast<size_t>(count_), "all blocks are back when their pool ends", free_.size(), count_);
}

template <typename Id>
std::optional<BlockRef<Id>> BlockPool<Id>::Take() {
  if (free_.empty()) return std::nullopt;
  const Id id(free_.back());
  free_.pop_back();
  Check(!taken_[id.value()], "a free block has no owner", id);
  taken_[id.value()] = true;
  if (block_bytes_ > 0) std::memset(BlockAt(id), 0, block_bytes_);
  return BlockRef<Id>(this, id);
}

template <typename Id>
void BlockPool<Id>::GiveBack(const Id id) {
  Check(taken_[id.value()], "a block is given back once", id);
  taken_[id.value()] = false;
  if (freed_ == FreedMemory::kPoison && block_bytes_ > 0) std::memset(BlockAt(id), 0xFF, block_bytes_);
  free_.push_back(id.value());
}

template <typename Id>
void BlockPool<Id>::CheckIntegrity() const {
  std::vector<bool> seen(count_, false);
  for (const int32_t id : free_) {
    Check(id >= 0 && id < count_, "free ids are in range", id);
    Check(!seen[id] && !taken_[id], "a free block is listed once and has no owner", id);
    seen[id] = true;
  }
  for (int32_t id = 0; id < count_; ++id) Check(seen[id] != taken_[id], "a block is free or owned", id);
}

template class BlockPool<PageId>;
template class BlockPool<SlotId>;

}  // namespace invar::cache
