// Whether to make a view to draft on: what it costs against what it gives, and what tries may lose.
#include "engine/speculate/view_worth.h"

#include <gtest/gtest.h>

namespace invar::engine {
namespace {

using Answer = ViewWorth::Answer;

constexpr double kDraftS = 0.002;  // A drafted token.
constexpr double kMakeS = 0.001;   // Of a view, a token: 0.1 s for a hundred.

// Steps take 10 ms, rows beyond the first 0.2 ms each.
StepTimes Machine() {
  StepTimes times;
  for (int32_t round = 0; round < 40; ++round) {
    for (const int32_t rows : {1, 3, 9}) times.Observe(rows, static_cast<TimeNs>((10.0 + 0.2 * (rows - 1)) * 1e6));
  }
  return times;
}

// One that has made a view, as a try, and whose drafts get so far.
ViewWorth RightSoOften(const int32_t right_of_ten) {
  ViewWorth worth;
  worth.Made(Machine(), 1, 100 * kMakeS, 100, /*is_try=*/true);
  for (int32_t i = 0; i < 500; ++i) worth.Verified(right_of_ten, right_of_ten < 10);
  return worth;
}

ViewWish Wish(const int32_t tokens, const int32_t output_left) {
  return {.tokens = tokens, .output_left = output_left, .most = 64};
}

TEST(ViewWorth, NothingIsMadeBeforeAStepWasSeen) {
  EXPECT_EQ(ViewWorth().Ask(StepTimes(), 1, 0.0, Wish(100, 100)), Answer::kNo);
  EXPECT_EQ(ViewWorth().Ask(Machine(), 1, 0.0, Wish(100, 100)), Answer::kTry);
}

TEST(ViewWorth, ATextThatSoonEndsGetsNoView) {
  const ViewWorth worth = RightSoOften(10);
  // A view of 100 tokens takes as long as ten steps; drafts that are always right are worth at least two steps each.
  EXPECT_EQ(worth.Ask(Machine(), 1, kDraftS, Wish(100, 1000)), Answer::kPays);
  EXPECT_EQ(worth.Ask(Machine(), 1, kDraftS, Wish(100, 3)), Answer::kNo);
  // And one of 10,000 tokens as long as a thousand.
  EXPECT_EQ(worth.Ask(Machine(), 1, kDraftS, Wish(10'000, 100)), Answer::kNo);
  EXPECT_EQ(worth.Ask(Machine(), 1, kDraftS, Wish(10'000, 4000)), Answer::kPays);
}

TEST(ViewWorth, DraftsThatAreRarelyRightOrTakeLongAreWorthNone) {
  EXPECT_EQ(RightSoOften(0).Ask(Machine(), 1, kDraftS, Wish(100, 100'000)), Answer::kNo);
  EXPECT_EQ(RightSoOften(10).Ask(Machine(), 1, 0.020, Wish(100, 100'000)), Answer::kNo);
  EXPECT_EQ(RightSoOften(10).Ask(Machine(), 1, kDraftS, {.tokens = 100, .output_left = 1, .most = 0}), Answer::kNo);
}

TEST(ViewWorth, TriesCostAShareOfWhatIsGenerated) {
  ViewWorth worth = RightSoOften(0);  // Its first view was a try that took ten steps.
  int32_t tokens = 0;
  int32_t tries = 0;
  while (tries < 10) {
    worth.Sampled();
    ++tokens;
    if (worth.Ask(Machine(), 1, kDraftS, Wish(100, 100)) != Answer::kTry) continue;
    ++tries;
    worth.Made(Machine(), 1, 100 * kMakeS, 100, /*is_try=*/true);
  }
  EXPECT_NEAR(tokens, 10 * 10 / ViewWorth::kTryShare, 200);  // Steps are fitted to within a percent.
}

TEST(ViewWorth, OldTokensAreNoLicenceToTryForLong) {
  ViewWorth worth = RightSoOften(0);
  for (int32_t i = 0; i < 1'000'000; ++i) worth.Sampled();
  int32_t tries = 0;
  for (; tries < 100 && worth.Ask(Machine(), 1, kDraftS, Wish(100, 100)) == Answer::kTry; ++tries) {
    worth.Made(Machine(), 1, 100 * kMakeS, 100, /*is_try=*/true);
  }
  EXPECT_NEAR(tries, ViewWorth::kCreditMax / 10, 1);  // Each takes ten steps.
}

TEST(ViewWorth, WhatPaysIsNoTry) {
  ViewWorth worth = RightSoOften(10);
  for (int32_t i = 0; i < 5; ++i) {
    ASSERT_EQ(worth.Ask(Machine(), 1, kDraftS, Wish(100, 1000)), Answer::kPays);
    worth.Made(Machine(), 1, 100 * kMakeS, 100, /*is_try=*/false);
  }
  for (int32_t i = 0; i < 2100; ++i) worth.Sampled();  // Of the one try at the beginning.
  EXPECT_EQ(worth.Ask(Machine(), 1, 1.0, Wish(100, 1000)), Answer::kTry);
}

// All wait for a view that one of them gets.
TEST(ViewWorth, InCompanyAViewCostsMore) {
  ViewWorth alone, among;
  alone.Made(Machine(), 1, 0.1, 100, true);
  among.Made(Machine(), 8, 0.1, 100, true);
  int32_t tokens = 0;
  while (alone.Ask(Machine(), 1, 1.0, Wish(100, 100)) != Answer::kTry) alone.Sampled(), ++tokens;
  for (int32_t i = 0; i < 5 * tokens; ++i) among.Sampled();
  EXPECT_EQ(among.Ask(Machine(), 8, 1.0, Wish(100, 100)), Answer::kNo);
}

}  // namespace
}  // namespace invar::engine
