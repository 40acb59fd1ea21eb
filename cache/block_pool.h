// A fixed number of equal blocks in one arena: pages of KV (page_pool.h) and slots of recurrent state
// (slot_pool.h) are the same mechanism under two ids that never mix.
// Invariant: every block is either on the free list or named by exactly one live BlockRef. A BlockRef gives its block
// back when it dies, so a leak is a living object that can be found, not a forgotten call.
// Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace invar::cache {

// What happens to the bytes of a block that is given back. Blocks are zeroed when taken in any case.
enum class FreedMemory {
  kKeep,
  kPoison,  // Filled with 0xFF: a NaN in fp32 and bf16, so that reading a freed block shows. For tests.
};

template <typename Id>
class BlockPool;

// Owns one block. Requires: the pool outlives it.
template <typename Id>
class BlockRef {
 public:
  BlockRef(BlockRef&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}
  BlockRef& operator=(BlockRef&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~BlockRef();

  Id id() const { return id_; }

 private:
  friend class BlockPool<Id>;
  BlockRef(BlockPool<Id>* const pool, const Id id) : pool_(pool), id_(id) {}

  BlockPool<Id>* pool_;
  Id id_;
};

template <typename Id>
class BlockPool {
 public:
  // Takes all memory now; the system backs it with real pages at first touch. `block_bytes` may be 0: ids only.
  BlockPool(int32_t count, int64_t block_bytes, FreedMemory freed);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block of zero bytes; none left: nullopt.
  std::optional<BlockRef<Id>> Take();

  int32_t count() const { return count_; }
  int32_t free_count() const { return static_cast<int32_t>(free_.size()); }
  int64_t block_bytes() const { return block_bytes_; }
  // Block b lies at arena() + b * block_bytes().
  std::byte* arena() const { return arena_.get(); }
  bool IsTaken(const Id id) const { return taken_[id.value()]; }

  // Recounts the free list against the marks; stops the process where they differ.
  void CheckIntegrity() const;

 private:
  friend class BlockRef<Id>;
  struct FreeArena {
    void operator()(std::byte* const arena) const { ::operator delete[](arena, std::align_val_t{64}); }
  };
  void GiveBack(Id id);
  std::byte* BlockAt(Id id) const { return arena_.get() + id.value() * block_bytes_; }

  // Set at construction.
  const int32_t count_;
  const int64_t block_bytes_;
  const FreedMemory freed_;
  const std::unique_ptr<std::byte[], FreeArena> arena_;  // 64: cache line, and what vector loads of kernels want.

  std::vector<int32_t> free_;  // Last given back, first taken: its lines may still be in a cache.
  std::vector<bool> taken_;
};

template <typename Id>
BlockRef<Id>::~BlockRef() {
  if (pool_ != nullptr) pool_->GiveBack(id_);
}

extern template class BlockPool<PageId>;
extern template class BlockPool<SlotId>;

}  // namespace invar::cache
