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
    spec_.max_sequence_tokens = 100 * kernels::kPageTokens;
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
      AwayKv away(*store, parts, /*expected=*/4);
      std::vector<std::vector<std::byte>> pages;
      for (const size_t count : {3, 1, 1, 9, 1, 6}) {
        std::vector<const std::byte*> next;
        const auto made = pages_of.Make(count, random);
        for (const auto& page : made) next.push_back(page.data());
        ASSERT_TRUE(away.Append(next).ok());
        pages.insert(pages.end(), made.begin(), made.end());
        ASSERT_EQ(away.written(), static_cast<int32_t>(pages.size()));
        for (size_t part = 0; part < parts.count(); ++part) {
          BlockBuffer into, bounce;
          const StatusOr<const std::byte*> read = away.Part(part, into, bounce);
          ASSERT_TRUE(read.ok());
          for (size_t p = 0; p < pages.size(); ++p) {
            const std::byte* const want = pages[p].data() + static_cast<int64_t>(part) * layer_bytes;
            EXPECT_TRUE(std::equal(want, want + layer_bytes, *read + static_cast<int64_t>(p) * layer_bytes))
                << "part " << part << " of page " << p << ", parts of " << layer_bytes;
          }
        }
      }
    }
  }
}

TEST(AwayKv, ReadsInPlaceWhatThePageCacheHas) {
  SplitMix64 random(7);
  for (const bool direct : {false, true}) {
    for (const int64_t layer_bytes : {int64_t{64}, kBlockBytes}) {
      const PagesOf pages_of(layer_bytes);
      const PageParts parts = pages_of.parts();
      const auto store = OpenStore(1'000, direct);
      AwayKv away(*store, parts, /*expected=*/1);
      for (const auto& page : pages_of.Make(6, random)) {
        const std::byte* const next = page.data();
        ASSERT_TRUE(away.Append({&next, 1}).ok());
      }
      const bool in_place = !direct && layer_bytes == kBlockBytes;
      EXPECT_EQ(away.IsInMemory(), in_place);
      BlockBuffer into, bounce;
      EXPECT_EQ(away.Part(1, into, bounce).value() == into.data(), !in_place);
      EXPECT_EQ(into.data() == nullptr, in_place) << "nothing is copied";
    }
  }
}

TEST(AwayKv, BelievesWhatMayHaveComeFromTheDiskByItsChecksumAlone) {
  SplitMix64 random(8);
  const PagesOf pages_of(kBlockBytes);
  const PageParts parts = pages_of.parts();
  const auto store = OpenStore(100);
  AwayKv away(*store, parts, /*expected=*/3);
  const auto pages = pages_of.Make(3, random);
  std::vector<const std::byte*> all;
  for (const auto& page : pages) all.push_back(page.data());
  ASSERT_TRUE(away.Append(all).ok());
  BlockBuffer into, bounce;
  store->SetReadsDisk();
  EXPECT_FALSE(away.IsInMemory());
  EXPECT_TRUE(away.Part(0, into, bounce).ok());
  const std::byte damaged = pages[1][9] ^ std::byte{1};
  ASSERT_TRUE(store->Write(kBlockBytes + 9, {&damaged, 1}).ok());
  EXPECT_EQ(away.Part(0, into, bounce).status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(away.Part(1, into, bounce).ok());
}

TEST(MappedRange, SaysWhatWouldHaveToBeReadFirst) {
  const auto store = OpenStore(4);
  const MappedRange range(2 * kBlockBytes);
  const std::byte written{1};
  ASSERT_TRUE(store->Write(0, {&written, 1}).ok());
  ASSERT_TRUE(store->MapAt(range.data(), 0, kBlockBytes));
  ASSERT_TRUE(store->MapAt(range.data() + kBlockBytes, 8 * kBlockBytes, kBlockBytes));
  EXPECT_TRUE(range.IsInMemory(range.data(), kBlockBytes));
  EXPECT_EQ(range.data()[0], written);
  EXPECT_FALSE(range.IsInMemory(range.data() + kBlockBytes, kBlockBytes)) << "the file ends before";
}

TEST(AwayKv, SaysWhereTheBudgetEnds) {
  SplitMix64 random(6);
  const PagesOf pages_of(kBlockBytes);
  const PageParts parts = pages_of.parts();
  const auto store = OpenStore(3 * 4);
  AwayKv away(*store, parts, /*expected=*/4);
  const auto pages = pages_of.Make(5, random);
  std::vector<const std::byte*> all;
  for (const auto& page : pages) all.push_back(page.data());
  EXPECT_EQ(away.Append(all).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(away.written(), 0);
  EXPECT_TRUE(away.Append(std::span(all).first(4)).ok());
}

}  // namespace
}  // namespace invar::engine
