// What was measured, as the closed forms want it, and what follows for the requests that are there.
#include "engine/slow/tier_rates.h"

#include <gtest/gtest.h>

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

// 10 GB/s of memory, 200 GF; a link as given.
TierRates Measured(const double link_bytes_per_s) {
  TierRates rates(Spec());
  rates.StepTook(1, 0, 10 * kMs);
  rates.StepTook(512, 0, 512 * kMs);
  rates.StepTook(1, 0, 10 * kMs);
  rates.Streamed(static_cast<int64_t>(link_bytes_per_s / 100), 10 * kMs);
  return rates;
}

// Sixteen of 8,000 tokens: 80 MB of full KV each, 20 MB of views. Room for four, or for sixteen views.
RoundDemand Tight(const double acceptance) {
  return {.requests = 16,
          .tokens = 16 * 8'000,
          .view_bytes = 4 * 20 * kMb,
          .viewed_tokens = 4 * 8'000,
          .acceptance = acceptance,
          .kv_budget_bytes = 320 * kMb,
          .draft_memory_bytes = 320 * kMb};
}

TEST(TierRates, LearnBytesOfSmallStepsAndProductsOfLargeOnes) {
  const TwoTierDevice device = Measured(2e9).Device(Tight(0.9));
  EXPECT_NEAR(device.fast_bytes_per_s, 10e9, 1e7);
  EXPECT_NEAR(device.flops_per_s, 200e9, 1e8);
  EXPECT_NEAR(device.link_bytes_per_s, 2e9, 1e6);
  const SpeculationLoad load = Measured(2e9).Load(Tight(0.9));
  EXPECT_NEAR(load.full_kv_bytes, 80e6, 1);
  EXPECT_NEAR(load.compression, 4.0, 0.01);
}

TEST(TierRates, TryRoundsWhileNothingIsKnown) {
  const ModeChoice choice = TierRates(Spec()).Choose(Tight(0.5), {.draft_max = 32});
  EXPECT_EQ(choice.mode, DecodeMode::kStaggered);
  EXPECT_EQ(choice.draft_min, 32);
}

TEST(TierRates, TakeRoundsWhereTheFastTierIsTightAndTheLinkIsNot) {
  const ModeChoice choice = Measured(5e9).Choose(Tight(0.99), {.draft_max = 32});
  EXPECT_EQ(choice.mode, DecodeMode::kStaggered);
  EXPECT_GT(choice.gain, 1.1);
  EXPECT_EQ(choice.residents, 16);
}

TEST(TierRates, DecodePlainlyWhereTheLinkIsSlowOrDraftsAreWrong) {
  EXPECT_EQ(Measured(2e7).Choose(Tight(0.99), {.draft_max = 32}).mode, DecodeMode::kPlain);
  EXPECT_EQ(Measured(5e9).Choose(Tight(0.3), {.draft_max = 32}).mode, DecodeMode::kPlain);
}

TEST(TierRates, DecodePlainlyWhereAllFitAndTheLinkGivesNoMore) {
  RoundDemand roomy = Tight(0.99);
  roomy.kv_budget_bytes = 2'000 * kMb;
  const ModeChoice choice = Measured(1e8).Choose(roomy, {.draft_max = 32});
  EXPECT_EQ(choice.mode, DecodeMode::kPlain);
  EXPECT_EQ(choice.residents, 16) << "there are no more";
}

TEST(TierRates, FewerShareTheLinkWhereTheGapIsBounded) {
  const ModeChoice free = Measured(1e9).Choose(Tight(0.999), {.draft_max = 32, .gain_min = 0});
  const ModeChoice bound = Measured(1e9).Choose(Tight(0.999), {.draft_max = 32, .gain_min = 0, .gap_s_max = 0.5});
  EXPECT_EQ(free.residents, 16);
  EXPECT_LT(bound.residents, 6);
}

}  // namespace
}  // namespace invar::engine
