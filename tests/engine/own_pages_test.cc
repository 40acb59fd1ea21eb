// Counted again only where sharing changed, and then always: against a count from scratch.
#include "engine/loop/own_pages.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace invar::engine {
namespace {

using cache::Backing;
using cache::Fill;
using cache::Holder;
using cache::PagePool;
using cache::PageRef;
using cache::PageTable;

int32_t CountedFromScratch(const PageTable& table, const PagePool& pool) {
  int32_t own = 0;
  for (const PageId page : table.ids()) own += pool.LiveClaims(page) == 1 ? 1 : 0;
  return own;
}

TEST(OwnPages, FollowPagesThatOthersJoinAndLeave) {
  PagePool pool(4, 0, Backing::kNone);
  PageTable first;
  for (int i = 0; i < 3; ++i) first.Append(pool.Take(Fill::kNone).value());
  OwnPages own;
  EXPECT_EQ(own.Count(first, pool), 3);
  {
    PageTable second;
    second.Append(first.ref(0).Share(Holder::kLive));
    second.Append(first.ref(1).Share(Holder::kLive));
    EXPECT_EQ(own.Count(first, pool), 1);
  }
  EXPECT_EQ(own.Count(first, pool), 3);
}

TEST(OwnPages, GrowWithoutALookAtThePages) {
  PagePool pool(4, 0, Backing::kNone);
  PageTable table;
  OwnPages own;
  EXPECT_EQ(own.Count(table, pool), 0);
  const int64_t changes = pool.sharing_changes();
  for (int32_t pages = 1; pages <= 4; ++pages) {
    table.Append(pool.Take(Fill::kNone).value());
    EXPECT_EQ(own.Count(table, pool), pages);
  }
  const PageRef cached = table.ref(0).Share(Holder::kCached);  // What the cache keeps frees nothing less.
  EXPECT_EQ(own.Count(table, pool), 4);
  EXPECT_EQ(pool.sharing_changes(), changes);
}

TEST(OwnPages, EqualACountFromScratchWhateverHappens) {
  constexpr int kTables = 5;
  std::mt19937 random(1);
  const auto below = [&](const int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  PagePool pool(40, 0, Backing::kNone);
  std::vector<PageTable> tables(kTables);
  std::vector<OwnPages> own(kTables);
  for (int i = 0; i < 20'000; ++i) {
    PageTable& table = tables[below(kTables)];
    const PageTable& other = tables[below(kTables)];
    switch (below(5)) {
      case 0:
        if (std::optional<PageRef> page = pool.Take(Fill::kNone)) table.Append(*std::move(page));
        break;
      case 1:
        if (&other != &table && other.size() > 0) table.Append(other.ref(below(other.size())).Share(Holder::kLive));
        break;
      case 2:
        if (table.size() > 0) table.RemoveLast();
        break;
      case 3:
        if (&other != &table && table.size() > 0 && other.size() > 0) {
          table.Replace(below(table.size()), other.ref(below(other.size())).Share(Holder::kLive));
        }
        break;
      default:
        if (below(20) == 0) table.Clear();
    }
    for (int t = 0; t < kTables; ++t) {
      ASSERT_EQ(own[t].Count(tables[t], pool), CountedFromScratch(tables[t], pool)) << i << " " << t;
    }
  }
}

}  // namespace
}  // namespace invar::engine
