// A number of equal blocks in one arena: pages of KV (page_pool.h) and slots of recurrent state (slot_pool.h) are the
// same mechanism under two ids that never mix.
// Blocks are shared: a BlockRef is one holder's claim, and a block is free once the last claim is gone. Holders are of
// two kinds, because memory that only the cache holds can be had back at any time and memory that a sequence holds
// cannot: a block is live while a kLive claim exists, cached while there are only kCached ones, and free otherwise.
// Invariant: a block is free exactly when no BlockRef names it, so a leak is a living object that can be found.
// Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "cache/arena.h"

namespace invar::cache {

// What stands behind the blocks.
enum class Backing {
  kMemory,
  kPoisonedMemory,  // Freed blocks are filled with 0xFF: a NaN in fp32 and bf16, so that reading one shows. For tests.
  kNone,            // Nothing: bytes are only counted. For replaying traces.
};

// What a block holds when it is taken.
enum class Fill {
  kZero,
  kNone,  // Whatever it held: for takers that write all of it.
};

enum class Holder { kLive, kCached };

template <typename Id>
class BlockPool;

// One holder's claim on a block. Requires: the pool outlives it.
template <typename Id>
class BlockRef {
 public:
  BlockRef(BlockRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_), holder_(other.holder_) {}
  BlockRef& operator=(BlockRef&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    std::swap(holder_, other.holder_);
    return *this;
  }
  ~BlockRef();

  Id id() const { return id_; }
  std::byte* data() const;
  // Makes the first bytes of the block those of `from`; nothing where the pool has no memory. Requires: they fit.
  void CopyFrom(std::span<const std::byte> from) const;
  // Another claim on the same block.
  BlockRef Share(Holder holder) const;
  // All of the block; meaningful only where the pool has memory.
  std::span<const std::byte> bytes() const { return {data(), static_cast<size_t>(pool_->block_bytes())}; }

 private:
  friend class BlockPool<Id>;
  BlockRef(BlockPool<Id>* const pool, const Id id, const Holder holder) : pool_(pool), id_(id), holder_(holder) {}

  BlockPool<Id>* pool_;
  Id id_;
  Holder holder_;
};

template <typename Id>
class BlockPool {
 public:
  // Lays out address space for all blocks; memory comes at first touch. `block_bytes` may be 0: ids only.
  BlockPool(int32_t count, int64_t block_bytes, Backing backing);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A kLive claim; none left: nullopt. A block that still has memory goes before one that has not.
  std::optional<BlockRef<Id>> Take(Fill fill);

  int32_t count() const { return count_; }
  int32_t live_count() const { return live_count_; }
  int32_t cached_count() const { return cached_count_; }
  int32_t taken_count() const { return live_count_ + cached_count_; }
  int32_t free_count() const { return count_ - taken_count(); }
  int64_t block_bytes() const { return block_bytes_; }
  // Block b lies at arena() + b * block_bytes().
  std::byte* arena() const { return arena_.data(); }
  bool IsTaken(const Id id) const { return id.value() < std::ssize(claims_) && claims_[id.value()].all() > 0; }
  // Requires: the block is taken.
  int32_t LiveClaims(const Id id) const { return claims_[id.value()].live; }
  // Moves whenever a live claim joins others on a block or leaves them: until it does, whoever shares blocks shares the
  // same ones.
  int64_t sharing_changes() const { return sharing_changes_; }

  // Free blocks that still have memory, and giving up to `blocks` of it back to the system.
  int32_t warm_count() const { return static_cast<int32_t>(warm_.size()); }
  void Discard(int32_t blocks);

  // Recounts everything; stops the process where it differs.
  void CheckIntegrity() const;

 private:
  friend class BlockRef<Id>;
  struct Claims {
    int32_t live = 0;
    int32_t cached = 0;
    int32_t all() const { return live + cached; }
  };
  void Add(Id id, Holder holder);
  void Remove(Id id, Holder holder);
  std::byte* BlockAt(Id id) const { return arena_.data() + id.value() * block_bytes_; }

  // Set at construction.
  const int32_t count_;
  const int64_t block_bytes_;
  const Backing backing_;
  Arena arena_;

  std::vector<int32_t> warm_;   // Free, with memory. Last given back, first taken: its lines may still be in a cache.
  std::vector<int32_t> cold_;   // Free, without memory.
  std::vector<Claims> claims_;  // Of blocks taken at least once; all beyond are free and without memory.
  int32_t live_count_ = 0;
  int32_t cached_count_ = 0;
  int64_t sharing_changes_ = 0;
};

template <typename Id>
BlockRef<Id>::~BlockRef() {
  if (pool_ != nullptr) pool_->Remove(id_, holder_);
}

template <typename Id>
std::byte* BlockRef<Id>::data() const {
  return pool_->BlockAt(id_);
}

template <typename Id>
void BlockRef<Id>::CopyFrom(const std::span<const std::byte> from) const {
  if (pool_->arena() != nullptr) std::memcpy(data(), from.data(), from.size());
}

template <typename Id>
BlockRef<Id> BlockRef<Id>::Share(const Holder holder) const {
  pool_->Add(id_, holder);
  return BlockRef(pool_, id_, holder);
}

extern template class BlockPool<PageId>;
extern template class BlockPool<SlotId>;

}  // namespace invar::cache
