// Claims are counted per block; a block's kind (live, cached, free) follows from its counts alone.
#include "cache/block_pool.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace invar::cache {

template <typename Id>
BlockPool<Id>::BlockPool(const int32_t count, const int64_t block_bytes, const Backing backing)
    : count_(count),
      block_bytes_(block_bytes),
      backing_(backing),
      arena_(backing == Backing::kNone ? 0 : count * block_bytes) {
  Check(count >= 0 && block_bytes >= 0, "a pool has no negative size", count, block_bytes);
}

template <typename Id>
BlockPool<Id>::~BlockPool() {
  Check(taken_count() == 0, "all blocks are back when their pool ends", taken_count());
}

template <typename Id>
std::optional<BlockRef<Id>> BlockPool<Id>::Take(const Fill fill) {
  if (free_count() == 0) return std::nullopt;
  std::vector<int32_t>& from = warm_.empty() ? cold_ : warm_;
  if (from.empty()) {
    from.push_back(static_cast<int32_t>(claims_.size()));
    claims_.emplace_back();
  }
  const Id id(from.back());
  from.pop_back();
  Check(!IsTaken(id), "a free block has no owner", id);
  if (fill == Fill::kZero && arena_.data() != nullptr) std::memset(BlockAt(id), 0, block_bytes_);
  Add(id, Holder::kLive);
  return BlockRef<Id>(this, id, Holder::kLive);
}

template <typename Id>
void BlockPool<Id>::Add(const Id id, const Holder holder) {
  Claims& claims = claims_[id.value()];
  if (holder == Holder::kLive && claims.live > 0) ++sharing_changes_;
  if (holder == Holder::kLive && claims.live++ == 0) {
    ++live_count_;
    cached_count_ -= claims.cached > 0 ? 1 : 0;
  }
  if (holder == Holder::kCached && claims.cached++ == 0) cached_count_ += claims.live == 0 ? 1 : 0;
}

template <typename Id>
void BlockPool<Id>::Remove(const Id id, const Holder holder) {
  Claims& claims = claims_[id.value()];
  int32_t& count = holder == Holder::kLive ? claims.live : claims.cached;
  Check(count > 0, "a claim is given back once", id);
  --count;
  if (holder == Holder::kLive && claims.live > 0) ++sharing_changes_;
  if (holder == Holder::kLive && claims.live == 0) {
    --live_count_;
    cached_count_ += claims.cached > 0 ? 1 : 0;
  }
  if (holder == Holder::kCached && claims.cached == 0) cached_count_ -= claims.live == 0 ? 1 : 0;
  if (claims.all() > 0) return;
  if (backing_ == Backing::kPoisonedMemory && arena_.data() != nullptr) std::memset(BlockAt(id), 0xFF, block_bytes_);
  warm_.push_back(id.value());
}

template <typename Id>
void BlockPool<Id>::Discard(const int32_t blocks) {
  for (int32_t i = 0; i < blocks && !warm_.empty(); ++i) {
    const int32_t id = warm_.front();  // The longest unused.
    warm_.erase(warm_.begin());
    arena_.Discard(id * block_bytes_, block_bytes_);
    cold_.push_back(id);
  }
}

template <typename Id>
void BlockPool<Id>::CheckIntegrity() const {
  const int32_t known = static_cast<int32_t>(claims_.size());
  std::vector<bool> seen(known, false);
  for (const std::vector<int32_t>* const list : {&warm_, &cold_}) {
    for (const int32_t id : *list) {
      Check(id >= 0 && id < known, "free ids are in range", id);
      Check(!seen[id] && !IsTaken(Id(id)), "a free block is listed once and has no owner", id);
      seen[id] = true;
    }
  }
  int32_t live = 0;
  int32_t cached = 0;
  for (int32_t id = 0; id < known; ++id) {
    Check(seen[id] != IsTaken(Id(id)), "a block is free or owned", id);
    live += claims_[id].live > 0 ? 1 : 0;
    cached += claims_[id].live == 0 && claims_[id].cached > 0 ? 1 : 0;
  }
  Check(live == live_count_ && cached == cached_count_, "live and cached blocks are counted", live, cached);
}

template class BlockPool<PageId>;
template class BlockPool<SlotId>;

}  // namespace invar::cache
