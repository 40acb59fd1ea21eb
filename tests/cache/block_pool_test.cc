// Blocks of pages and slots: taken zeroed, owned once, given back by destructors.
#include "cache/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "cache/cache_memory.h"
#include "cache/page_table.h"
#include "cache/slot_pool.h"

namespace invar::cache {
namespace {

std::byte* BlockOf(const PagePool& pool, const PageId id) { return pool.arena() + id.value() * pool.block_bytes(); }

TEST(BlockPool, GivesEveryBlockOnceAndThenNothing) {
  PagePool pool(3, 64, Backing::kMemory);
  std::vector<PageRef> held;
  std::set<PageId> ids;
  for (int i = 0; i < 3; ++i) {
    held.push_back(pool.Take(Fill::kZero).value());
    ids.insert(held.back().id());
  }
  EXPECT_EQ(ids.size(), 3U);
  EXPECT_FALSE(pool.Take(Fill::kZero).has_value());
  pool.CheckIntegrity();
}

TEST(BlockPool, GivesABlockBackWhenItsOwnerDies) {
  PagePool pool(1, 64, Backing::kMemory);
  { const PageRef page = pool.Take(Fill::kZero).value(); }
  EXPECT_EQ(pool.free_count(), 1);
  EXPECT_TRUE(pool.Take(Fill::kZero).has_value());
}

TEST(BlockPool, MovingAnOwnerKeepsTheBlockTaken) {
  PagePool pool(2, 64, Backing::kMemory);
  PageRef a = pool.Take(Fill::kZero).value();
  PageRef b = std::move(a);
  EXPECT_EQ(pool.free_count(), 1);
  EXPECT_TRUE(pool.IsTaken(b.id()));
  pool.CheckIntegrity();
}

TEST(BlockPool, ATakenBlockIsZeroWhateverWasWrittenThere) {
  for (const Backing backing : {Backing::kMemory, Backing::kPoisonedMemory}) {
    PagePool pool(1, 64, backing);
    {
      const PageRef page = pool.Take(Fill::kZero).value();
      std::memset(BlockOf(pool, page.id()), 7, 64);
    }
    const PageRef page = pool.Take(Fill::kZero).value();
    EXPECT_TRUE(std::all_of(BlockOf(pool, page.id()), BlockOf(pool, page.id()) + 64,
                            [](const std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(BlockPool, PoisonedBlocksReadAsNan) {
  PagePool pool(1, 64, Backing::kPoisonedMemory);
  const PageId id = pool.Take(Fill::kZero).value().id();  // The owner dies at once.
  float value;
  std::memcpy(&value, BlockOf(pool, id), sizeof value);
  EXPECT_NE(value, value);
}

TEST(BlockPool, SlotsOfZeroBytesAreStillCounted) {
  SlotPool pool(2, 0, Backing::kPoisonedMemory);
  const SlotRef slot = pool.Take(Fill::kZero).value();
  EXPECT_EQ(pool.free_count(), 1);
  pool.CheckIntegrity();
}

TEST(BlockPoolDeathTest, AnOwnerThatOutlivesItsPoolStopsTheProcess) {
  EXPECT_DEATH(
      {
        auto pool = std::make_unique<PagePool>(1, 64, Backing::kMemory);
        const PageRef page = pool->Take(Fill::kZero).value();
        pool.reset();
      },
      "all blocks are back");
}

TEST(BlockPool, ABlockIsLiveThenCachedThenFreeAsItsClaimsGo) {
  PagePool pool(2, 64, Backing::kMemory);
  std::optional<PageRef> mine = pool.Take(Fill::kZero);
  std::optional<PageRef> cached = mine->Share(Holder::kCached);
  std::optional<PageRef> other = mine->Share(Holder::kLive);
  EXPECT_EQ(pool.live_count(), 1);
  EXPECT_EQ(pool.cached_count(), 0);
  EXPECT_EQ(pool.LiveClaims(mine->id()), 2);
  mine.reset();
  EXPECT_EQ(pool.live_count(), 1);
  other.reset();
  EXPECT_EQ(pool.live_count(), 0);
  EXPECT_EQ(pool.cached_count(), 1);
  pool.CheckIntegrity();
  std::optional<PageRef> again = cached->Share(Holder::kLive);
  EXPECT_EQ(pool.live_count(), 1);
  cached.reset();
  EXPECT_EQ(pool.cached_count(), 0);
  again.reset();
  EXPECT_EQ(pool.free_count(), 2);
  pool.CheckIntegrity();
}

TEST(BlockPool, DiscardedMemoryReadsAsZeroAndIsUsedAgain) {
  PagePool pool(1, 1 << 16, Backing::kMemory);
  {
    const PageRef page = pool.Take(Fill::kZero).value();
    std::memset(page.data(), 7, 1 << 16);
  }
  EXPECT_EQ(pool.warm_count(), 1);
  pool.Discard(5);
  EXPECT_EQ(pool.warm_count(), 0);
  pool.CheckIntegrity();
  const PageRef page = pool.Take(Fill::kNone).value();
  EXPECT_TRUE(std::all_of(page.data(), page.data() + (1 << 16), [](const std::byte b) { return b == std::byte{0}; }));
}

TEST(BlockPool, WithoutBackingBlocksAreOnlyCounted) {
  PagePool pool(1'000'000, int64_t{1} << 30, Backing::kNone);  // A petabyte.
  const PageRef page = pool.Take(Fill::kZero).value();
  EXPECT_EQ(pool.taken_count(), 1);
  EXPECT_EQ(pool.arena(), nullptr);
}

TEST(CacheMemory, PagesAndSlotsShareOneBudget) {
  CacheMemory memory({.page_bytes = 100, .state_bytes = 250}, 600, 0, Backing::kMemory);
  std::vector<PageRef> pages;
  std::vector<SlotRef> slots;
  slots.push_back(memory.TakeSlot(Fill::kZero).value());
  slots.push_back(memory.TakeSlot(Fill::kZero).value());
  pages.push_back(memory.TakePage(Fill::kZero).value());
  EXPECT_FALSE(memory.TakePage(Fill::kZero).has_value());
  EXPECT_FALSE(memory.TakeSlot(Fill::kZero).has_value());
  EXPECT_EQ(memory.used_bytes(), 600);
  slots.clear();
  for (int i = 0; i < 5; ++i) pages.push_back(memory.TakePage(Fill::kZero).value());
  EXPECT_EQ(memory.slots().warm_count(), 0);  // Their memory went to the pages.
  EXPECT_FALSE(memory.TakePage(Fill::kZero).has_value());
  memory.CheckIntegrity();
}

TEST(PageTable, NamesItsPagesInOrder) {
  PagePool pool(3, 64, Backing::kMemory);
  PageTable table;
  table.Append(pool.Take(Fill::kZero).value());
  table.Append(pool.Take(Fill::kZero).value());
  const PageId first = table.ids()[0];
  table.Replace(1, pool.Take(Fill::kZero).value());
  EXPECT_EQ(table.ids()[0], first);
  EXPECT_EQ(table.ids()[1], table.ref(1).id());
  EXPECT_EQ(pool.free_count(), 1);
  table.Clear();
  EXPECT_EQ(pool.free_count(), 3);
}

}  // namespace
}  // namespace invar::cache
