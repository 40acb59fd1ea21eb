// What was measured, as the closed forms want it, and what follows for the requests that are there.
#include "engine/speculate/tier_rates.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/speculate/round_probes.h"

namespace invar::engine {
namespace {

constexpr int64_t kMb = 1'000'000;
constexpr TimeNs kMs = 1'000'000;

// 100 MB of weights, 10 KB of KV a token.
models::ModelSpec Spec() {
  models::ModelSpec spec;
  spec.work.weight_bytes = 100 * kMb;
  spec.work.matmul_flops = 200 * kMb;
  spec.work.attention_flops_per_position = 10'000;
  spec.work.kv_bytes_per_position = 10'000;
  spec.page_bytes = 640'000;
  return spec;
}

// A machine whose step takes 10 ms, 1 ms a row, 1 us for each position whose KV is read and 0.1 us for each that a row
// reads; drafts alike, on a quarter of the KV.
TimeNs Takes(const ForwardWork& work, const double kv_share) {
  const double us = 10'000 * work.forwards + 1'000 * work.rows + kv_share * work.kv_positions + 0.1 * work.positions;
  return static_cast<TimeNs>(us * 1e3);
}

TierRates Measured(const double link_bytes_per_s) {
  TierRates rates(Spec());
  for (int i = 0; i < 40; ++i) {
    const double rows = 1 + i % 4;
    const double context = 2'000.0 * (1 + i % 3);
    const double tail = 1 + 8 * (i % 5);
    const ForwardWork plain{.rows = rows, .positions = rows * context, .kv_positions = rows * context};
    const ForwardWork verify{.rows = tail, .positions = tail * context, .kv_positions = context};
    rates.StepTook(plain, Takes(plain, 1.0));
    rates.StepTook(verify, Takes(verify, 1.0));
    rates.DraftsTook(plain, Takes(plain, 0.25));
  }
  rates.Streamed(static_cast<int64_t>(link_bytes_per_s / 100), 10 * kMs);
  return rates;
}

// Eight of 8,000 tokens: 80 MB of full KV each, 20 MB of views. Room for three, or for eight views and what they keep.
RoundDemand Tight(const double acceptance) {
  return {.requests = 8,
          .tokens = 8 * 8'000,
          .output_tokens = 8 * 1'000,
          .view_bytes = 4 * 20 * kMb,
          .viewed_tokens = 4 * 8'000,
          .acceptance = acceptance,
          .budget_bytes = 255 * kMb,
          .views_bytes_max = 165 * kMb};
}
// What the machine above really takes of them.
double PlainTokensPerSecond(const int32_t requests) { return requests / (0.010 + requests * (0.001 + 0.0088)); }

TEST(TierRates, TryShortRoundsWhileNothingIsKnown) {
  const ModeChoice choice = TierRates(Spec()).Choose(Tight(0.5), {.draft_max = 32}, {});
  EXPECT_EQ(choice.mode, DecodeMode::kStaggered);
  EXPECT_EQ(choice.draft_min, 8) << "a wrong one at its beginning would throw a long draft away";
  EXPECT_EQ(choice.draft_max, 8);
}

TEST(TierRates, ExpectOfRoundsWhatTheyTakeOnThisMachine) {
  const ModeChoice choice = Measured(20e9).Choose(Tight(1.0), {.draft_max = 8}, {});
  ASSERT_EQ(choice.mode, DecodeMode::kStaggered);
  EXPECT_EQ(choice.residents, 8);
  EXPECT_EQ(choice.draft_min, 8);
  EXPECT_TRUE(choice.together) << "one forward for all verifies, and the link is fast";
  const double drafts = 8 * (0.010 + 8 * (0.001 + 0.25 * 0.008 + 0.0008));
  const double verify = 0.010 + 8 * (9 * (0.001 + 0.0008) + 0.008) + 8 * 0.004;
  EXPECT_NEAR(choice.tokens_per_s, 8 * 9 / (drafts + verify), 0.05 * 8 * 9 / (drafts + verify));
  EXPECT_NEAR(choice.gain, 8 * 9 / (drafts + verify) / PlainTokensPerSecond(3), 0.1);
}

TEST(TierRates, GoApartWhereTheLinkIsWhatAllWaitFor) {
  const ModeChoice choice = Measured(2e8).Choose(Tight(1.0), {.draft_max = 64, .gain_min = 0}, {});
  EXPECT_FALSE(choice.together) << "drafts and verifies go beside the streams of others";
  EXPECT_EQ(choice.draft_max, 64);
}

TEST(TierRates, DecodePlainlyWhereTheLinkIsSlowOrDraftsAreWrong) {
  EXPECT_EQ(Measured(2e7).Choose(Tight(0.99), {.draft_max = 32}, {}).mode, DecodeMode::kPlain);
  EXPECT_EQ(Measured(5e9).Choose(Tight(0.3), {.draft_max = 32}, {}).mode, DecodeMode::kPlain);
}

TEST(TierRates, DecodePlainlyWhereAllFitAndTheLinkGivesNoMore) {
  RoundDemand roomy = Tight(0.99);
  roomy.budget_bytes = 2'000 * kMb;
  const ModeChoice choice = Measured(2e8).Choose(roomy, {.draft_max = 32}, {});
  EXPECT_EQ(choice.mode, DecodeMode::kPlain) << choice.gain;
  EXPECT_EQ(choice.residents, 8) << "there are no more";
}

TEST(TierRates, MoveNobodyOutToLearnWhereAllFit) {
  RoundDemand roomy = Tight(0.99);
  roomy.budget_bytes = 2'000 * kMb;
  roomy.tried = false;
  const ModeChoice choice = TierRates(Spec()).Choose(roomy, {.draft_max = 32}, {});
  EXPECT_EQ(choice.mode, DecodeMode::kPlain);
  EXPECT_TRUE(choice.all_fit);
  roomy.other_pages = 3'000;
  EXPECT_EQ(TierRates(Spec()).Choose(roomy, {.draft_max = 32}, {}).mode, DecodeMode::kStaggered);
}

TEST(TierRates, ForgetNoViewWhenNobodyHasOneAnyMore) {
  TierRates rates = Measured(20e9);
  const double gain = rates.Choose(Tight(0.99), {.draft_max = 32}, {}).gain;
  RoundDemand none = Tight(0.99);
  none.view_bytes = none.viewed_tokens = 0;
  EXPECT_NEAR(rates.Choose(none, {.draft_max = 32}, {}).gain, gain, 1e-6);
}

TEST(TierRates, CountWhatViewsTakeToBeMade) {
  TierRates rates = Measured(20e9);
  RoundDemand short_answers = Tight(0.99);
  short_answers.output_tokens = 8 * 20;
  const double before = rates.Choose(short_answers, {.draft_max = 32}, {}).gain;
  rates.ViewsMade(8'000, 500 * kMs);
  rates.MovedOut(80 * kMb, 100 * kMs);
  const double after = rates.Choose(short_answers, {.draft_max = 32}, {}).gain;
  EXPECT_LT(after, 0.7 * before) << "30 ms a token";
}

TEST(TierRates, HoldWhatRoundsGiveAgainstWhatWasSaid) {
  TierRates rates = Measured(20e9);
  const double said = rates.Choose(Tight(1.0), {.draft_max = 8}, {}).tokens_per_s;
  for (int i = 0; i < 300; ++i) {
    rates.Choose(Tight(1.0), {.draft_max = 8}, {});
    rates.RoundsGave(72, static_cast<TimeNs>(72 / (0.8 * said) * 1e9));
  }
  EXPECT_NEAR(rates.Choose(Tight(1.0), {.draft_max = 8}, {}).tokens_per_s, 0.8 * said, 0.02 * said);
}

TEST(TierRates, TakeTwoSecondsOfLongRoundsAsEnough) {
  TierRates rates = Measured(20e9);
  const double said = rates.Choose(Tight(1.0), {.draft_max = 8}, {}).tokens_per_s;
  const auto gave = [&](const int rounds, const double share, const double tokens) {
    for (int i = 0; i < rounds; ++i) {
      rates.Choose(Tight(1.0), {.draft_max = 8}, {});
      rates.RoundsGave(static_cast<int64_t>(tokens), static_cast<TimeNs>(tokens / (share * said) * 1e9));
    }
  };
  const double half_a_second = 0.5 * 0.6 * said;
  gave(300, 1.0, half_a_second);
  gave(8, 0.6, half_a_second);
  EXPECT_LT(rates.Choose(Tight(1.0), {.draft_max = 8}, {}).tokens_per_s, 0.7 * said);
}

TEST(TierRates, HoldStepsOfPlainDecodingAgainstWhatWasSaidOfThem) {
  TierRates rates = Measured(20e9);
  const double said = rates.Choose(Tight(1.0), {.draft_max = 8}, {}).gain;
  const ForwardWork three{.rows = 3, .positions = 24'000, .kv_positions = 24'000};
  for (int i = 0; i < 8; ++i)
    rates.PlainStepTook(three, static_cast<TimeNs>(0.8 * static_cast<double>(Takes(three, 1.0))));
  EXPECT_NEAR(rates.Choose(Tight(1.0), {.draft_max = 8}, {}).gain, 0.8 * said, 0.03 * said);
}

TEST(TierRates, DecodeOnWhatStreamsByWithoutDraftsWhereTheLinkIsAsFastAsMemory) {
  TierRates rates = Measured(20e9);
  for (int i = 0; i < 60; ++i) rates.Streamed(80 * kMb, 0);
  const ModeChoice wrong = rates.Choose(Tight(0.1), {.draft_max = 8}, {});
  EXPECT_EQ(wrong.mode, DecodeMode::kStaggered) << "eight share each reading of the weights, three otherwise";
  EXPECT_EQ(wrong.draft_max, 0);
  EXPECT_EQ(wrong.residents, 8);
}

TEST(TierRates, CountWhoIsAwayAsThoseWhoHaveRoom) {
  RoundDemand tight = Tight(1.0);
  tight.budget_bytes = 120 * kMb;
  EXPECT_LT(Measured(20e9).Choose(tight, {.draft_max = 8}, {}).residents, 8);
  tight.away = 8;
  EXPECT_EQ(Measured(20e9).Choose(tight, {.draft_max = 8}, {}).residents, 8);
}

TEST(TierRates, CountOfStreamsWhatForwardsWaitForThem) {
  TierRates rates = Measured(1e9);
  EXPECT_FALSE(rates.Choose(Tight(1.0), {.draft_max = 8}, {}).together) << "nothing is known to be hidden";
  for (int i = 0; i < 20; ++i) rates.Waited(80 * kMb, 8 * kMs);
  EXPECT_TRUE(rates.Choose(Tight(1.0), {.draft_max = 8}, {}).together) << "nine tenths of the reading are";
}

TEST(TierRates, VerifyNoMoreTogetherThanThereIsStagingFor) {
  TierRates rates = Measured(20e9);
  const double all = rates.Choose(Tight(1.0), {.draft_max = 8}, {}).tokens_per_s;
  EXPECT_LT(rates.Choose(Tight(1.0), {.draft_max = 8}, {.staging_bytes = 1}).tokens_per_s, 0.95 * all);
  EXPECT_LT(rates.Choose(Tight(1.0), {.draft_max = 8}, {.rows = 20}).tokens_per_s, 0.99 * all);
}

TEST(TierRates, CountOfAPromptWhatItHoldsWhileItMovesOut) {
  RoundDemand tight = Tight(1.0);
  tight.budget_bytes = 8 * 20 * kMb + 7 * 2 * 640'000 + 4 * 640'000;
  tight.working_pages = 4;
  EXPECT_EQ(Measured(20e9).Choose(tight, {.draft_max = 8}, {}).residents, 8) << "the last is never there as a whole";
  tight.working_pages = 5;
  EXPECT_EQ(Measured(20e9).Choose(tight, {.draft_max = 8}, {}).residents, 7);
}

TEST(TierRates, FewerGoRoundWhereTheGapIsBounded) {
  const ModeChoice free = Measured(20e9).Choose(Tight(0.999), {.draft_max = 32, .gain_min = 0}, {});
  const ModeChoice bound = Measured(20e9).Choose(Tight(0.999), {.draft_max = 32, .gain_min = 0, .gap_s_max = 0.1}, {});
  EXPECT_EQ(free.residents, 8);
  EXPECT_LT(bound.residents, 6);
}

// --- What the sums rest on ---

TEST(ForwardTimes, TellThePartsOfForwardsApart) {
  ForwardTimes times(Spec().work);
  for (int i = 0; i < 200; ++i) {
    const double rows = 1 + i % 7;
    const double context = 1'000.0 * (1 + i % 4);
    const ForwardWork work{.rows = rows, .positions = rows * context, .kv_positions = (i % 2 ? rows : 1) * context};
    times.Observe(work, ToSeconds(Takes(work, 1.0)));
  }
  for (const double rows : {1.0, 5.0, 20.0}) {
    const ForwardWork work{.rows = rows, .positions = rows * 3'000, .kv_positions = 3'000};
    EXPECT_NEAR(times.Of(work), ToSeconds(Takes(work, 1.0)), 0.05 * ToSeconds(Takes(work, 1.0))) << rows;
  }
}

TEST(ForwardTimes, AreOnAScaleAfterOneForward) {
  ForwardTimes times(Spec().work);
  EXPECT_FALSE(times.observed());
  times.Observe({.rows = 1}, 0.02);
  EXPECT_NEAR(times.Of({.rows = 1}), 0.02, 1e-3);
  EXPECT_GT(times.Of({.rows = 10}), 0.03);
}

TEST(ForwardTimes, AStallOfTheMachineSaysLittle) {
  ForwardTimes times(Spec().work);
  for (int i = 0; i < 20; ++i) times.Observe({.rows = 1.0 + i % 3}, 0.01 + 0.001 * (i % 3));
  times.Observe({.rows = 1}, 30.0);
  EXPECT_LT(times.Of({.rows = 1}), 0.015);
}

TEST(ForwardTimes, CountSeveralForwardsAsSoMany) {
  ForwardTimes times(Spec().work);
  for (int i = 0; i < 200; ++i) times.Observe({.rows = 2}, 0.020);
  for (int i = 0; i < 20; ++i) times.Observe({.forwards = 8, .rows = 16}, 8 * 0.010);
  EXPECT_LT(times.Of({.rows = 2}), 0.012) << "nine tenths of what counts are newer";
}

// --- When they are tried ---

TEST(RoundProbes, TryAgainAfterPausesThatGrow) {
  constexpr TimeNs kSecond = 1'000'000'000;
  RoundProbes probes;
  EXPECT_FALSE(probes.Look(/*pays=*/false, 0, 0));
  std::vector<int64_t> begins;
  int64_t verifies = 0;
  bool tries = false;
  for (int64_t s = 1; s < 1'000; ++s) {
    const bool now = probes.Look(false, verifies, s * kSecond);
    if (now && !tries) begins.push_back(s);
    tries = now;
    if (now) verifies += 2;  // A try is over after two seconds.
  }
  ASSERT_GE(begins.size(), 3U);
  EXPECT_EQ(begins[0], 60);
  EXPECT_GE(begins[1] - begins[0], 200) << "a hundred times what the try took";
  EXPECT_GE(begins[2] - begins[1], 2 * (begins[1] - begins[0]) - 10);
}

TEST(RoundProbes, ATryThatNobodyComesToVerifyInEnds) {
  RoundProbes probes;
  probes.Look(false, 0, 0);
  EXPECT_TRUE(probes.Look(false, 0, RoundProbes::kFirstPauseNs));
  EXPECT_TRUE(probes.Look(false, 0, RoundProbes::kFirstPauseNs + RoundProbes::kMostTryNs - 1));
  EXPECT_FALSE(probes.Look(false, 0, RoundProbes::kFirstPauseNs + RoundProbes::kMostTryNs));
}

TEST(DraftTries, TryNowAndThenForOneRound) {
  constexpr TimeNs kSecond = 1'000'000'000;
  DraftTries tries;
  int64_t verifies = 0;
  int64_t tried_ms = 0;
  for (int64_t ms = 0; ms < 100'000; ms += 50) {
    const bool now = tries.Look(/*drafts=*/false, /*in_a_round=*/4, verifies, ms * kMs);
    if (ms < DraftTries::kLeastPauseNs / kMs) {
      ASSERT_FALSE(now) << "what began it is still known";
    }
    if (now) tried_ms += 50;
    if (now && ms % 200 == 0) verifies += 4;
  }
  EXPECT_GE(tried_ms, 600);
  EXPECT_LE(tried_ms, 100'000 / DraftTries::kPauseOverTry);
  EXPECT_FALSE(tries.Look(/*drafts=*/true, 4, verifies, 200 * kSecond)) << "they draft anyway";
  EXPECT_FALSE(tries.Look(false, 4, verifies, 200 * kSecond));
}

TEST(RoundProbes, WhatPaysNeedsNoTry) {
  RoundProbes probes;
  probes.Look(false, 0, 0);
  EXPECT_FALSE(probes.Look(/*pays=*/true, 0, 10 * RoundProbes::kFirstPauseNs));
  EXPECT_FALSE(probes.Look(false, 0, 10 * RoundProbes::kFirstPauseNs)) << "the pause begins anew";
}

}  // namespace
}  // namespace invar::engine
