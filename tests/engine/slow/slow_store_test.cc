// The store's file, its ranges, and the KV that lies in it: what is written comes back, whatever the pages' parts are.
#include "engine/slow/slow_store.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/split_mix64.h"
#include "engine/slow/away_kv.h"

namespace invar::engine {
namespace {

std::unique_ptr<SlowStore> OpenStore(const int64_t blocks, const bool direct = false) {
  StatusOr<std::unique_ptr<SlowStore>> store =
      SlowStore::Open({.path = ::testing::TempDir(), .budget_bytes = blocks * kBlockBytes, .direct = direct});
  EXPECT_TRUE(store.ok()) << store.status().message();
  return *std::move(store);
}

TEST(SlowStore, GivesRangesBackAndJoinsThem) {
  const auto store = OpenStore(4);
  auto a = store->Take(kBlockBytes);
  auto b = store->Take(2 * kBlockBytes);
  auto c = store->Take(kBlockBytes);
  EXPECT_FALSE(store->Take(kBlockBytes).has_value());
  a.reset();
  EXPECT_FALSE(store->Take(2 * kBlockBytes).has_value()) << "one block is free";
  b.reset();
  const auto joined = store->Take(3 * kBlockBytes);
  ASSERT_TRUE(joined.has_value());
  EXPECT_EQ(joined->offset(), 0);
  EXPECT_EQ(store->used_bytes(), 4 * kBlockBytes);
}

TEST(SlowStore, LeavesNoNameBehind) {
  const auto store = OpenStore(4);
  EXPECT_FALSE(std::filesystem::exists(::testing::TempDir() + "/slow_kv"));
}

TEST(SlowStore, NamesTheFieldOfAFolderThatIsNot) {
  const auto store = SlowStore::Open({.path = ::testing::TempDir() + "/none"});
  EXPECT_EQ(store.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store.status().field(), "engine.speculation.slow_tier.path");
}

// Two layers and something behind them, of sizes that are no whole blocks.
class PagesOf {
 public:
  explicit PagesOf(const int64_t layer_bytes) {
    spec_.attention.page_offsets_bytes = {0, layer_bytes};
    spec_.page_bytes = 3 * layer_bytes;
    spec_.mtp.why_not.clear();
  }
  PageParts parts() const { return PageParts(spec_); }
  std::vector<std::vector<std::byte>> Make(const size_t count, SplitMix64& random) const {
    std::vector<std::vector<std::byte>> pages(count, std::vector<std::byte>(static_cast<size_t>(spec_.page_bytes)));
    for (std::vector<std::byte>& page : pages) {
      for (std::byte& b : page) b = static_cast<std::byte>(random.Next());
    }
    return pages;
  }

 private:
  models::ModelSpec spec_;
};

TEST(AwayKv, GivesEveryPartOfAllPagesBack) {
  SplitMix64 random(5);
  for (const bool direct : {false, true}) {
    for (const int64_t layer_bytes : {64, 4096, 8256}) {
      const PagesOf pages_of(layer_bytes);
      const PageParts parts = pages_of.parts();
      ASSERT_EQ(parts.count(), 3u);
      const auto store = OpenStore(100'000, direct);
      AwayKv away(*store, parts);
      std::vector<std::vector<std::byte>> pages;
      for (const size_t count : {3, 1, 1, 9, 1, 6}) {
        std::vector<const std::byte*> next;
        const auto made = pages_of.Make(count, random);
        for (const auto& page : made) next.push_back(page.data());
        ASSERT_TRUE(away.Append(next).ok());
        pages.insert(pages.end(), made.begin(), made.end());
        ASSERT_EQ(away.written(), static_cast<int32_t>(pages.size()));
        for (size_t part = 0; part < parts.count(); ++part) {
          BlockBuffer to, bounce;
          to.Reserve(away.PartBytes(part) + kBlockBytes);
          ASSERT_TRUE(away.ReadPart(part, to.data(), bounce).ok());
          for (size_t p = 0; p < pages.size(); ++p) {
            const std::byte* const want = pages[p].data() + static_cast<int64_t>(part) * layer_bytes;
            EXPECT_TRUE(std::equal(want, want + layer_bytes, to.data() + static_cast<int64_t>(p) * layer_bytes))
                << "part " << part << " of page " << p << ", parts of " << layer_bytes;
          }
        }
      }
    }
  }
}

TEST(AwayKv, SaysWhereTheBudgetEnds) {
  SplitMix64 random(6);
  const PagesOf pages_of(kBlockBytes);
  const PageParts parts = pages_of.parts();
  const auto store = OpenStore(3 * 4);
  AwayKv away(*store, parts);
  const auto pages = pages_of.Make(5, random);
  std::vector<const std::byte*> all;
  for (const auto& page : pages) all.push_back(page.data());
  EXPECT_EQ(away.Append(all).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(away.written(), 0);
  EXPECT_TRUE(away.Append(std::span(all).first(4)).ok());
}

}  // namespace
}  // namespace invar::engine
