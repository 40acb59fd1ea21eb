// CacheMemory: all pages and slots of one engine under one byte budget. A page and a state differ in size by an order
// of magnitude and more, and which of the two is worth more changes with the load, so neither has a share of its own:
// each pool is laid out for the whole budget, and memory moves between them as blocks are freed.
// Compressed views lie outside of the pools, in bytes that a ByteClaim takes from the same budget.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "cache/page_pool.h"
#include "cache/slot_pool.h"
#include "cache/state_shape.h"

namespace invar::cache {

class CacheMemory;

// Bytes of the budget that somebody holds outside of the pools. Giving them back is its destructor.
// Requires: the memory outlives it.
class ByteClaim {
 public:
  ByteClaim(ByteClaim&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
  ByteClaim& operator=(ByteClaim&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ByteClaim();

  int64_t bytes() const { return bytes_; }

 private:
  friend class CacheMemory;
  ByteClaim(CacheMemory* const memory, const int64_t bytes) : memory_(memory), bytes_(bytes) {}

  CacheMemory* memory_;
  int64_t bytes_;
};

class CacheMemory {
 public:
  // `slots_without_bytes`: how many slots there are where a slot takes no memory (dense models).
  CacheMemory(const StateShape& shape, int64_t budget_bytes, int32_t slots_without_bytes, Backing backing);

  // A block with a kLive claim, or nullopt where the budget is used up.
  std::optional<PageRef> TakePage(Fill fill) { return Take(pages_, slots_, fill); }
  std::optional<SlotRef> TakeSlot(Fill fill) { return Take(slots_, pages_, fill); }
  // Another budget, of at most the bytes that it was made for. Effects: as Reserve's. Requires: what is used fits it.
  void SetBudget(int64_t bytes);
  // nullopt alike. Effects: free blocks give memory back, so that what is resident stays within the budget.
  std::optional<ByteClaim> Reserve(int64_t bytes);

  const PagePool& pages() const { return pages_; }
  const SlotPool& slots() const { return slots_; }
  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t reserved_bytes() const { return reserved_bytes_; }  // Of all byte claims.
  // Of byte claims and of blocks that are taken (live or cached), or live.
  int64_t used_bytes() const { return Bytes(pages_.taken_count(), slots_.taken_count()) + reserved_bytes_; }
  int64_t live_bytes() const { return Bytes(pages_.live_count(), slots_.live_count()) + reserved_bytes_; }

  void CheckIntegrity() const;

 private:
  friend class ByteClaim;
  int64_t Bytes(const int64_t pages, const int64_t slots) const {
    return pages * pages_.block_bytes() + slots * slots_.block_bytes();
  }
  template <typename Id, typename OtherId>
  std::optional<BlockRef<Id>> Take(BlockPool<Id>& pool, BlockPool<OtherId>& other, Fill fill);
  template <typename Id>
  void Trim(BlockPool<Id>& pool, int64_t more);

  // Set at construction.
  const int64_t budget_bytes_max_;

  int64_t budget_bytes_;
  int64_t reserved_bytes_ = 0;
  PagePool pages_;
  SlotPool slots_;
};

}  // namespace invar::cache
