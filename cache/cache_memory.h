// CacheMemory: all pages and slots of one engine under one byte budget. A page and a state differ in size by an order
// of magnitude and more, and which of the two is worth more changes with the load, so neither has a share of its own:
// each pool is laid out for the whole budget, and memory moves between them as blocks are freed.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <optional>

#include "cache/page_pool.h"
#include "cache/slot_pool.h"
#include "cache/state_shape.h"

namespace invar::cache {

class CacheMemory {
 public:
  // `slots_without_bytes`: how many slots there are where a slot takes no memory (dense models).
  CacheMemory(const StateShape& shape, int64_t budget_bytes, int32_t slots_without_bytes, Backing backing);

  // A block with a kLive claim, or nullopt where the budget is used up.
  std::optional<PageRef> TakePage(Fill fill) { return Take(pages_, slots_, fill); }
  std::optional<SlotRef> TakeSlot(Fill fill) { return Take(slots_, pages_, fill); }

  const PagePool& pages() const { return pages_; }
  const SlotPool& slots() const { return slots_; }
  int64_t budget_bytes() const { return budget_bytes_; }
  // Of blocks that are taken (live or cached), and of live ones.
  int64_t used_bytes() const { return Bytes(pages_.taken_count(), slots_.taken_count()); }
  int64_t live_bytes() const { return Bytes(pages_.live_count(), slots_.live_count()); }

  void CheckIntegrity() const;

 private:
  int64_t Bytes(const int64_t pages, const int64_t slots) const {
    return pages * pages_.block_bytes() + slots * slots_.block_bytes();
  }
  template <typename Id, typename OtherId>
  std::optional<BlockRef<Id>> Take(BlockPool<Id>& pool, BlockPool<OtherId>& other, Fill fill);

  // Set at construction.
  const int64_t budget_bytes_;

  PagePool pages_;
  SlotPool slots_;
};

}  // namespace invar::cache
