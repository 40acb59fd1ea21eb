// What is believed of a tier: until when, of whom, and never more than it may be.
#include "cache/tiers/known_records.h"

#include <gtest/gtest.h>

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

TEST(KnownRecordsTest, NeverHoldsMoreThanItMay) {
  KnownRecords known(10);
  for (uint64_t i = 0; i < 1000; ++i) {
    known.AddPage(MadeKey(2 * i), MadeSpace(1), kNever);
    known.AddState(MadeKey(7), {}, MadeKey(2 * i + 1), MadeSpace(1), kNever);
    ASSERT_LE(known.count(), 10u);
    ASSERT_LE(known.StatesOf(MadeKey(7)).size(), 10u);
    EXPECT_TRUE(known.Has(MadeKey(2 * i + 1), 0));
  }
}

}  // namespace
}  // namespace invar::cache
