// What is believed of a tier: until when, of whom, and never more than it may be.
#include "cache/tiers/known_records.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/split_mix64.h"
#include "tests/cache/tiers/tier_kinds.h"

namespace invar::cache {
namespace {

const std::vector<TokenId> kTail = {TokenId(1), TokenId(2)};

TEST(KnownRecordsTest, BelievesUntilTheGivenTime) {
  KnownRecords known(100);
  known.AddPage(MadeKey(1), MadeSpace(1), 50);
  known.AddPage(MadeKey(2), MadeSpace(1), kNever);
  EXPECT_TRUE(known.Has(MadeKey(1), 49));
  EXPECT_FALSE(known.Has(MadeKey(1), 50));
  EXPECT_TRUE(known.Has(MadeKey(2), kNever - 1));
  known.AddPage(MadeKey(1), MadeSpace(1), 80);
  EXPECT_TRUE(known.Has(MadeKey(1), 79)) << "learned again";
}

TEST(KnownRecordsTest, ForgetsAStateInItsDirectoryToo) {
  KnownRecords known(100);
  known.AddState(MadeKey(9), kTail, MadeKey(1), MadeSpace(1), kNever);
  known.AddState(MadeKey(9), {}, MadeKey(2), MadeSpace(1), kNever);
  known.AddState(MadeKey(9), kTail, MadeKey(1), MadeSpace(1), kNever);
  ASSERT_EQ(known.StatesOf(MadeKey(9)).size(), 2u);
  known.Forget(MadeKey(1));
  ASSERT_EQ(known.StatesOf(MadeKey(9)).size(), 1u);
  EXPECT_EQ(known.StatesOf(MadeKey(9))[0].key, MadeKey(2));
  known.Forget(MadeKey(2));
  known.Forget(MadeKey(2));
  EXPECT_TRUE(known.StatesOf(MadeKey(9)).empty());
  EXPECT_EQ(known.count(), 0u);
}

TEST(KnownRecordsTest, ForgetsWhatBelongsToSomeSpaces) {
  KnownRecords known(100);
  known.AddPage(MadeKey(1), MadeSpace(1), kNever);
  known.AddState(MadeKey(9), kTail, MadeKey(2), MadeSpace(2), kNever);
  known.Forget(OnlyOf(2));
  EXPECT_TRUE(known.Has(MadeKey(1), 0));
  EXPECT_FALSE(known.Has(MadeKey(2), 0));
  EXPECT_TRUE(known.StatesOf(MadeKey(9)).empty());
  known.Forget(TierSpaces());
  EXPECT_EQ(known.count(), 0u);
}

// A drop is told once a second for as long as its tier is away, whatever else is known of it: a walk over all would be
// 10^11 steps here.
TEST(KnownRecordsTest, ForgettingASpaceThatIsNotThereCostsNothingHoweverMuchIs) {
  KnownRecords known(1'000'000);
  for (uint64_t i = 0; i < 100'000; ++i) known.AddPage(MadeKey(i), MadeSpace(1), kNever);
  const TierSpaces of = OnlyOf(2);
  for (int i = 0; i < 1'000'000; ++i) known.Forget(of);
  EXPECT_EQ(known.count(), 100'000u);
}

// Against a list, with spaces that begin alike.
TEST(KnownRecordsTest, ForgetsAndKeepsLikeAPlainList) {
  struct Entry {
    TierKey key;
    TierSpace space;
    bool is_state;
  };
  SplitMix64 random(1);
  KnownRecords known(1000);
  std::vector<Entry> list;
  const auto space = [&] {
    TierSpace made{};
    made[0] = std::byte(random.Next() % 3);
    made[16] = std::byte(random.Next() % 3);
    return made;
  };
  for (uint64_t i = 0; i < 5000; ++i) {
    switch (random.Next() % 16) {
      case 0: {
        TierSpaces of{.space = space(), .bytes = random.Next() % 8 == 0 ? 0u : random.Next() % 2 == 0 ? 16u : 32u};
        std::fill(of.space.begin() + static_cast<std::ptrdiff_t>(of.bytes), of.space.end(), std::byte(0));
        known.Forget(of);
        std::erase_if(list, [&](const Entry& entry) { return of.Cover(entry.space); });
        break;
      }
      case 1:
        if (list.empty()) break;
        known.Forget(list[random.Next() % list.size()].key);
        std::erase_if(list, [&](const Entry& entry) { return !known.Has(entry.key, 0); });
        break;
      default:
        list.push_back({MadeKey(i), space(), i % 2 == 1});
        if (list.back().is_state) {
          known.AddState(MadeKey(1'000'000 + i % 7), {}, list.back().key, list.back().space, kNever);
        } else {
          known.AddPage(list.back().key, list.back().space, kNever);
        }
    }
    known.CheckIntegrity();
    ASSERT_EQ(known.count(), list.size()) << i;
    for (const Entry& entry : list) ASSERT_TRUE(known.Has(entry.key, 0)) << i;
  }
  size_t states = 0;
  for (uint64_t d = 0; d < 7; ++d) states += known.StatesOf(MadeKey(1'000'000 + d)).size();
  EXPECT_EQ(states, static_cast<size_t>(std::ranges::count_if(list, &Entry::is_state)));
}

TEST(KnownRecordsTest, NeverHoldsMoreThanItMay) {
  KnownRecords known(10);
  for (uint64_t i = 0; i < 1000; ++i) {
    known.AddPage(MadeKey(2 * i), MadeSpace(1), kNever);
    known.AddState(MadeKey(7), {}, MadeKey(2 * i + 1), MadeSpace(1), kNever);
    known.CheckIntegrity();
    ASSERT_LE(known.count(), 10u);
    ASSERT_LE(known.StatesOf(MadeKey(7)).size(), 10u);
    EXPECT_TRUE(known.Has(MadeKey(2 * i + 1), 0));
  }
}

}  // namespace
}  // namespace invar::cache
