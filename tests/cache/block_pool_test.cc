// Blocks of pages and slots: taken zeroed, owned once, given back by destructors.
#include "cache/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "cache/page_table.h"
#include "cache/slot_pool.h"

namespace invar::cache {
namespace {

std::byte* BlockOf(const PagePool& pool, const PageId id) { return pool.arena() + id.value() * pool.block_bytes(); }

TEST(BlockPool, GivesEveryBlockOnceAndThenNothing) {
  PagePool pool(3, 64, FreedMemory::kKeep);
  std::vector<PageRef> held;
  std::set<PageId> ids;
  for (int i = 0; i < 3; ++i) {
    held.push_back(pool.Take().value());
    ids.insert(held.back().id());
  }
  EXPECT_EQ(ids.size(), 3U);
  EXPECT_FALSE(pool.Take().has_value());
  pool.CheckIntegrity();
}

TEST(BlockPool, GivesABlockBackWhenItsOwnerDies) {
  PagePool pool(1, 64, FreedMemory::kKeep);
  { const PageRef page = pool.Take().value(); }
  EXPECT_EQ(pool.free_count(), 1);
  EXPECT_TRUE(pool.Take().has_value());
}

TEST(BlockPool, MovingAnOwnerKeepsTheBlockTaken) {
  PagePool pool(2, 64, FreedMemory::kKeep);
  PageRef a = pool.Take().value();
  PageRef b = std::move(a);
  EXPECT_EQ(pool.free_count(), 1);
  EXPECT_TRUE(pool.IsTaken(b.id()));
  pool.CheckIntegrity();
}

TEST(BlockPool, ATakenBlockIsZeroWhateverWasWrittenThere) {
  for (const FreedMemory freed : {FreedMemory::kKeep, FreedMemory::kPoison}) {
    PagePool pool(1, 64, freed);
    {
      const PageRef page = pool.Take().value();
      std::memset(BlockOf(pool, page.id()), 7, 64);
    }
    const PageRef page = pool.Take().value();
    EXPECT_TRUE(std::all_of(BlockOf(pool, page.id()), BlockOf(pool, page.id()) + 64,
                            [](const std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(BlockPool, PoisonedBlocksReadAsNan) {
  PagePool pool(1, 64, FreedMemory::kPoison);
  const PageId id = pool.Take().value().id();  // The owner dies at once.
  float value;
  std::memcpy(&value, BlockOf(pool, id), sizeof value);
  EXPECT_NE(value, value);
}

TEST(BlockPool, SlotsOfZeroBytesAreStillCounted) {
  SlotPool pool(2, 0, FreedMemory::kPoison);
  const SlotRef slot = pool.Take().value();
  EXPECT_EQ(pool.free_count(), 1);
  pool.CheckIntegrity();
}

TEST(BlockPoolDeathTest, AnOwnerThatOutlivesItsPoolStopsTheProcess) {
  EXPECT_DEATH(
      {
        auto pool = std::make_unique<PagePool>(1, 64, FreedMemory::kKeep);
        const PageRef page = pool->Take().value();
        pool.reset();
      },
      "all blocks are back");
}

TEST(PageTable, GrowsToACountAndGivesAllBack) {
  PagePool pool(3, 64, FreedMemory::kKeep);
  PageTable table;
  EXPECT_TRUE(table.GrowTo(2, pool));
  EXPECT_TRUE(table.GrowTo(1, pool));  // Never shrinks.
  EXPECT_EQ(table.size(), 2);
  EXPECT_FALSE(table.GrowTo(4, pool));
  EXPECT_EQ(pool.free_count(), 0);
  table.Clear();
  EXPECT_EQ(pool.free_count(), 3);
}

}  // namespace
}  // namespace invar::cache
