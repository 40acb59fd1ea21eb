// How long to draft: times of steps learned from what was seen, lengths that pay, and the budget of trying.
#include "engine/speculate/draft_length.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tools/sim/random.h"

namespace invar::engine {
namespace {

// A machine on which a step takes 10 ms and `row_ms` for every row beyond the first.
StepTimes Machine(const double row_ms) {
  StepTimes times;
  for (int32_t round = 0; round < 40; ++round) {
    for (const int32_t rows : {1, 3, 9}) times.Observe(rows, static_cast<TimeNs>((10.0 + row_ms * (rows - 1)) * 1e6));
  }
  return times;
}

TEST(StepTimes, LearnALine) {
  const StepTimes times = Machine(2.0);
  EXPECT_NEAR(times.Of(1), 0.010, 0.0005);
  EXPECT_NEAR(times.Of(5), 0.018, 0.0005);
  EXPECT_NEAR(times.Of(17), 0.042, 0.002);
}

TEST(StepTimes, GuessTheSlopeUntilStepsOfOtherSizesWereSeen) {
  StepTimes times;
  EXPECT_NEAR(times.Of(2) / times.Of(1), 1.15, 0.01);
  for (int32_t i = 0; i < 50; ++i) times.Observe(1, 8'000'000);
  EXPECT_NEAR(times.Of(1), 0.008, 1e-6);
  EXPECT_NEAR(times.Of(2), 0.0092, 1e-6);
}

TEST(StepTimes, FollowAMachineThatChangesAndForgiveOneStall) {
  StepTimes times = Machine(1.0);
  times.Observe(9, 5'000'000'000);
  EXPECT_LT(times.Of(9), 0.025);
  for (int32_t i = 0; i < 300; ++i) times.Observe(i % 2 == 0 ? 1 : 5, i % 2 == 0 ? 40'000'000 : 48'000'000);
  EXPECT_NEAR(times.Of(1), 0.040, 0.002);
  EXPECT_NEAR(times.Of(5), 0.048, 0.002);
}

TEST(StepTimes, NeverGiveNothing) {
  StepTimes times;
  for (int32_t i = 0; i < 100; ++i) times.Observe(i % 2 == 0 ? 8 : 10, i % 2 == 0 ? 1'000'000 : 9'000'000);
  EXPECT_GT(times.Of(1), 0.0);
}

TEST(DraftRecord, KnowsHowOftenDraftsAreRight) {
  DraftRecord record;
  EXPECT_DOUBLE_EQ(record.acceptance(), 0.5);
  for (int32_t i = 0; i < 50; ++i) record.Verified(4, 3, true, 0.1);
  EXPECT_NEAR(record.acceptance(), 0.75, 0.02);
  for (int32_t i = 0; i < 50; ++i) record.Verified(4, 0, true, 0.1);
  EXPECT_LT(record.acceptance(), 0.06);
  for (int32_t i = 0; i < 50; ++i) record.Verified(4, 4, false, 0.1);
  EXPECT_GT(record.acceptance(), 0.95);
}

TEST(DraftRecord, LosesNoMoreThanItsCredit) {
  DraftRecord record;
  double lost = 0.0;
  for (int32_t token = 0; token < 10'000; ++token) {
    record.Sampled();
    if (record.credit() < 0.3) continue;
    record.Verified(1, 0, true, 0.3);
    lost += 0.3;
  }
  EXPECT_GT(lost, 90.0);  // It keeps trying.
  EXPECT_LE(lost, DraftRecord::kFirstCredit + DraftRecord::kCreditShare * 10'000 + 1e-6);
}

TEST(DraftRecord, OldGainsBuyLittle) {
  DraftRecord record;
  for (int32_t i = 0; i < 100; ++i) record.Verified(8, 8, false, 0.1);
  EXPECT_LE(record.credit(), DraftRecord::kCreditMax);
}

DraftWish Wish(const double acceptance, const double credit = 1.0, const int32_t most = 64) {
  return {.most = most, .fixed = 0, .acceptance = acceptance, .credit = credit};
}
std::vector<int32_t> Lengths(const StepTimes& times, std::vector<DraftWish> wishes) {
  ChooseLengths(times, wishes);
  std::vector<int32_t> lengths;
  for (const DraftWish& wish : wishes) lengths.push_back(wish.length);
  return lengths;
}

TEST(ChooseLengths, AreLongWhereDraftsAreRightAndRowsCheap) {
  const int32_t good = Lengths(Machine(1.0), {Wish(0.95)})[0];
  const int32_t fair = Lengths(Machine(1.0), {Wish(0.6)})[0];
  EXPECT_GT(good, 10);
  EXPECT_GT(fair, 0);
  EXPECT_LT(fair, 5);
  EXPECT_LT(Lengths(Machine(4.0), {Wish(0.95)})[0], good);
}

TEST(ChooseLengths, AreNothingWhereItDoesNotPay) {
  EXPECT_EQ(Lengths(Machine(2.0), {Wish(0.1, 0.0)}), (std::vector<int32_t>{0}));
  EXPECT_EQ(Lengths(Machine(10.0), {Wish(0.9, 0.0)}), (std::vector<int32_t>{0}));
}

TEST(ChooseLengths, WhatDoesNotPayIsTriedWhereThereIsCredit) {
  EXPECT_EQ(Lengths(Machine(2.0), {Wish(0.1, 0.3)}), (std::vector<int32_t>{1}));
  EXPECT_EQ(Lengths(Machine(2.0), {Wish(0.1, 0.15)}), (std::vector<int32_t>{0}));
}

TEST(ChooseLengths, WithoutCreditThereIsNoDraft) {
  EXPECT_EQ(Lengths(Machine(1.0), {Wish(0.95, -0.1)}), (std::vector<int32_t>{0}));
}

TEST(ChooseLengths, AreWhatTheRequestSaysWhateverItCosts) {
  const DraftWish told{.most = 64, .fixed = 9, .acceptance = 0.01, .credit = -5.0};
  const DraftWish short_of_room{.most = 3, .fixed = 9, .acceptance = 0.01, .credit = -5.0};
  EXPECT_EQ(Lengths(Machine(10.0), {told, short_of_room}), (std::vector<int32_t>{9, 3}));
}

DraftWish Costly(const double draft_s, const double acceptance = 0.9, const double credit = 1.0) {
  DraftWish wish = Wish(acceptance, credit);
  wish.draft_s = draft_s;
  return wish;
}

TEST(ChooseLengths, TheTimeOfDraftingCounts) {
  const StepTimes machine = Machine(1.0);
  const int32_t free = Lengths(machine, {Costly(0.0)})[0];
  const int32_t costly = Lengths(machine, {Costly(0.003)})[0];
  EXPECT_GT(costly, 0);
  EXPECT_LT(costly, free);
  // A guess that takes as long as a step pays for nobody, however right it is; with credit it is tried.
  EXPECT_EQ(Lengths(machine, {Costly(0.010, 0.9, 0.5)})[0], 0);
  EXPECT_EQ(Lengths(machine, {Costly(0.010, 0.9, 1.5)})[0], 1);
  EXPECT_NEAR(RowCost(machine, 1, 0.010), RowCost(machine, 1, 0.0) + 1.0, 0.05);
  // Another's free guesses are taken nevertheless.
  const std::vector<int32_t> lengths = Lengths(machine, {Costly(0.010, 0.95, 0.0), Costly(0.0, 0.8)});
  EXPECT_EQ(lengths[0], 0);
  EXPECT_GT(lengths[1], 0);
}

TEST(ChooseLengths, RowsOfNeighboursCount) {
  // Alone a draft of half-right tokens pays; among thirty others, whose step it would hold up, it does not.
  std::vector<DraftWish> crowd(31);
  crowd[0] = Wish(0.5, 0.0);
  EXPECT_GT(Lengths(Machine(1.5), {Wish(0.5, 0.0)})[0], 0);
  EXPECT_EQ(Lengths(Machine(1.5), crowd)[0], 0);
}

TEST(ChooseLengths, GoToTheBetterSequencesFirst) {
  const std::vector<int32_t> lengths = Lengths(Machine(1.0), {Wish(0.5), Wish(0.9), Wish(0.0, 0.0, 0)});
  EXPECT_GT(lengths[1], lengths[0]);
  EXPECT_EQ(lengths[2], 0);
}

// Against trying every combination.
TEST(ChooseLengths, NoOtherLengthsGiveMoreTokensASecond) {
  sim::Random random(3);
  for (int32_t round = 0; round < 300; ++round) {
    const StepTimes times = Machine(0.1 * random.Between(1, 40));
    std::vector<DraftWish> wishes;
    for (int32_t i = random.Between(1, 3); i > 0; --i) {
      wishes.push_back(Wish(0.01 * random.Between(5, 99), 0.0, random.Between(0, 6)));
    }
    const auto rate = [&](const std::vector<int32_t>& lengths) {
      double tokens = 0.0;
      int32_t rows = 0;
      for (size_t i = 0; i < lengths.size(); ++i) {
        for (int32_t t = 0; t <= lengths[i]; ++t) tokens += std::pow(wishes[i].acceptance, t);
        rows += 1 + lengths[i];
      }
      return tokens / times.Of(rows);
    };
    const double chosen = rate(Lengths(times, wishes));
    std::vector<int32_t> lengths(wishes.size(), 0);
    for (bool more = true; more;) {
      ASSERT_LE(rate(lengths), chosen * kWorthwhile + 1e-9) << "round " << round;
      more = false;
      for (size_t i = 0; i < lengths.size() && !more; ++i) {
        more = lengths[i] < wishes[i].most;
        lengths[i] = more ? lengths[i] + 1 : 0;
      }
    }
  }
}

}  // namespace
}  // namespace invar::engine
