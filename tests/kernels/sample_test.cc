// Sampling against a naive oracle, and as a distribution.
#include "kernels/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/isa.h"
#include "kernels/gumbel.h"
#include "tests/kernels/rig.h"

namespace invar::kernels {
namespace {

RowSampler Best() { return RowSampler::Create({}).value(); }

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int32_t> Sorted(const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](const int32_t a, const int32_t b) { return logits[a] > logits[b]; });
  return ids;
}

// The definition: sort everything, filter one after another in double, add noise, take the largest.
int32_t NaiveSample(const std::vector<float>& logits, const SampleSettings& s, const NoiseKey& key) {
  std::vector<int32_t> ids = Sorted(logits);
  if (s.temperature == 0.0F) return ids[0];
  if (s.top_k > 0) ids.resize(std::min<size_t>(ids.size(), s.top_k));
  const auto weight = [&](const int32_t id) {
    return std::exp((static_cast<double>(logits[id]) - logits[ids[0]]) / s.temperature);
  };
  double total = 0.0;
  for (const int32_t id : ids) total += weight(id);
  std::vector<int32_t> kept;
  double sum = 0.0;
  for (const int32_t id : ids) {
    kept.push_back(id);
    sum += weight(id);
    if (s.top_p < 1.0F && sum >= s.top_p * total) break;
  }
  int32_t best = -1;
  double best_score = -INFINITY;
  std::sort(kept.begin(), kept.end());
  for (const int32_t id : kept) {
    if (weight(id) < s.min_p) continue;
    const double noise = GumbelOf(TokenNoise(key, id / 4)[id % 4]);
    const double score = (static_cast<double>(logits[id]) - logits[ids[0]]) / s.temperature + noise;
    if (score > best_score) {
      best_score = score;
      best = id;
    }
  }
  return best;
}

TEST(RowSampler, AgreesWithTheNaiveDefinition) {
  uint32_t seed = 0;
  for (const int size : {1, 2, 50, 3000}) {
    for (const float scale : {0.01F, 1.0F, 12.0F}) {
      for (const SampleSettings& s : {SampleSettings{0.0F, 0, 1.0F, 0.0F},
                                      {1.0F, 0, 1.0F, 0.0F},
                                      {0.7F, 20, 1.0F, 0.0F},
                                      {1.3F, 0, 0.9F, 0.0F},
                                      {1.0F, 0, 1.0F, 0.1F},
                                      {0.8F, 5, 0.6F, 0.3F},
                                      {2.0F, 9, 0.0F, 0.0F}}) {
        for (uint32_t position = 0; position < 20; ++position) {
          std::vector<float> logits = RandomFloats(size, ++seed, scale);
          if (position % 2 == 0) {  // Ties.
            for (float& logit : logits) logit = std::round(logit * 4.0F / scale) * scale / 4.0F;
          }
          const NoiseKey key{seed, position % 3, position};
          ASSERT_EQ(Best().Sample(logits, s, key), NaiveSample(logits, s, key))
              << size << " " << scale << " " << s.temperature;
        }
      }
    }
  }
}

TEST(RowSampler, DrawsFromTheSoftmax) {
  const std::vector<float> logits = {1.0F, 0.0F, -1.0F, 2.0F, -kInfinity};
  constexpr int kDraws = 40000;
  std::vector<int> counts(logits.size());
  for (uint32_t i = 0; i < kDraws; ++i) ++counts[Best().Sample(logits, {}, {i, 0, i * 7})];
  double total = 0.0;
  for (const float logit : logits) total += std::exp(logit);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(logits[i]) / total;
    EXPECT_NEAR(counts[i], kDraws * p, 5.0 * std::sqrt(kDraws * p * (1 - p)) + 1e-9) << i;  // Five standard deviations.
  }
}

TEST(RowSampler, IsWellDefinedAtTheEnds) {
  const std::vector<float> logits = {-3.0F, 5.0F, 5.0F, -kInfinity, std::nanf("")};
  EXPECT_EQ(Best().Sample(logits, {.temperature = 0.0F}, {}), 1);
  EXPECT_EQ(Best().Sample(logits, {.temperature = 1e-38F}, {}), 1);
  EXPECT_EQ(Best().Sample(logits, {.temperature = kGreedyBelow, .top_k = 1}, {}), 1);
  EXPECT_EQ(Best().Sample(logits, {.temperature = kGreedyBelow, .top_p = 0.1F}, {}), 1);
  std::vector<int> counts(5);
  for (uint32_t i = 0; i < 3000; ++i) ++counts[Best().Sample(logits, {.temperature = 3e38F}, {i, 0, 0})];
  for (const int id : {0, 1, 2}) EXPECT_NEAR(counts[id], 1000, 130);
  EXPECT_EQ(counts[3] + counts[4], 0);
  EXPECT_EQ(Best().Sample(std::vector<float>{-kInfinity, -kInfinity}, {}, {}), -1);
  EXPECT_EQ(Best().Sample(std::vector<float>{0.0F, kInfinity, kInfinity}, {}, {}), 1);
}

TEST(RowSampler, TopKOfTiesKeepsTheSmallestIds) {
  const std::vector<float> logits(1000, 1.0F);
  for (uint32_t i = 0; i < 200; ++i) EXPECT_LT(Best().Sample(logits, {.top_k = 3}, {i, 0, 0}), 3);
}

TEST(RowSampler, TheTopIsThePrefixOfASort) {
  for (const int size : {10, 5000}) {
    std::vector<float> logits = RandomFloats(size, 3);
    for (float& logit : logits) logit = std::round(logit * 100.0F);
    for (const int k : {1, 5, 19}) {
      std::vector<int32_t> ids;
      Best().Top(logits, k, &ids);
      std::vector<int32_t> want = Sorted(logits);
      want.resize(std::min<size_t>(want.size(), k));
      EXPECT_EQ(ids, want);
    }
  }
}

TEST(RowSampler, TheLogOfTheSumIsCloseToDoubleAndStableForLargeLogits) {
  for (const float scale : {1.0F, 30.0F, 1e4F}) {
    const std::vector<float> logits = RandomFloats(20000, 5, scale);
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(logit - largest);
    EXPECT_NEAR(Best().LogSumExp(logits), largest + std::log(sum), 3e-7 * std::fabs(largest) + 2e-6);
  }
}

// The scalar loops, counted.
struct CountedTable {
  static inline int maxima = 0;
  static inline int sums = 0;

  static cpu::KernelTable Make() {
    maxima = sums = 0;
    cpu::KernelTable table = *cpu::ChooseTable("scalar").value();
    table.block_maxima = [](const float* x, const int64_t n, float* out) {
      ++maxima;
      (*cpu::ChooseTable("scalar"))->block_maxima(x, n, out);
    };
    table.exp_sum = [](const float* x, const int64_t n, const float largest, const float temperature, float* terms) {
      ++sums;
      return (*cpu::ChooseTable("scalar"))->exp_sum(x, n, largest, temperature, terms);
    };
    return table;
  }
};

TEST(RowSampler, RunsOnItsOwnTableAlone) {
  const std::vector<float> logits = RandomFloats(3000, 1, 8.0F);
  const cpu::KernelTable table = CountedTable::Make();
  const RowSampler rows(table);
  std::vector<int32_t> ids;
  rows.Sample(logits, {.top_p = 0.5F}, {});              // Maxima, sum.
  rows.Sample(logits, {.top_k = 9, .top_p = 0.5F}, {});  // The same.
  rows.LogSumExp(logits);                                // The same.
  rows.ArgMax(logits);                                   // Maxima.
  rows.Top(logits, 5, &ids);                             // Maxima.
  EXPECT_EQ(CountedTable::maxima, 5);
  EXPECT_EQ(CountedTable::sums, 3);
}

TEST(RowSampler, OfEveryInstructionSetChoosesTheSame) {
  for (const std::string& isa : cpu::DetectedIsas()) {
    const RowSampler rows = RowSampler::Create(isa).value();
    EXPECT_EQ(rows.isa(), isa);
    for (const int size : {1, 15, 16, 17, 1023, 5000}) {
      std::vector<float> logits = RandomFloats(size, static_cast<uint32_t>(size), 9.0F);
      if (size > 1) logits[0] = -kInfinity;
      if (size > 2) logits[1] = std::nanf("");
      ASSERT_EQ(BitsOf({rows.LogSumExp(logits)}), BitsOf({Best().LogSumExp(logits)})) << isa << " " << size;
      ASSERT_EQ(rows.ArgMax(logits), Best().ArgMax(logits)) << isa << " " << size;
      for (const SampleSettings& s :
           {SampleSettings{1.0F, 0, 1.0F, 0.0F}, {0.7F, 20, 0.9F, 0.0F}, {1.3F, 0, 0.8F, 0.01F}}) {
        for (uint32_t position = 0; position < 20; ++position) {
          const NoiseKey key{7, 0, position};
          ASSERT_EQ(rows.Sample(logits, s, key), Best().Sample(logits, s, key)) << isa << " " << size;
        }
      }
    }
  }
}

TEST(RowSampler, KnowsNoOtherInstructionSets) {
  EXPECT_EQ(RowSampler::Create("mmx").status().code(), StatusCode::kInvalidArgument);
}

TEST(Philox, MatchesThePublishedVectors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

// Two logits a rounding apart: just below the threshold the larger always wins, at it both are drawn.
TEST(RowSampler, IsGreedyJustBelowTheThresholdAndDrawsAtIt) {
  const std::vector<float> logits = {0.0F, 1e-6F};
  const float below = std::nextafter(kGreedyBelow, 0.0F);
  int draws[2] = {};
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(Best().Sample(logits, {.temperature = below}, {i, 0, 0}), 1);
    ++draws[Best().Sample(logits, {.temperature = kGreedyBelow}, {i, 0, 0})];
  }
  EXPECT_GT(draws[0], 400);  // 1 / (1 + e^0.1) is 0.475; 400 is five deviations below.
  EXPECT_GT(draws[1], 400);
}

}  // namespace
}  // namespace invar::kernels
