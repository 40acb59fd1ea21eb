// Sampling against a naive oracle, and as a distribution.
#include "kernels/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/worker_pool.h"
#include "kernels/cpu/isa.h"
#include "kernels/shared/gumbel.h"
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
  static inline int sifts = 0;

  static cpu::KernelTable Make() {
    maxima = sums = sifts = 0;
    cpu::KernelTable table = *cpu::ChooseTable("scalar").value();
    table.block_maxima = [](const float* x, const int64_t n, float* out) {
      ++maxima;
      (*cpu::ChooseTable("scalar"))->block_maxima(x, n, out);
    };
    table.exp_sum = [](const float* x, const int64_t n, const float largest, const float temperature, float* terms) {
      ++sums;
      return (*cpu::ChooseTable("scalar"))->exp_sum(x, n, largest, temperature, terms);
    };
    table.sift_noise = [](const cpu::NoiseSift& sift, cpu::NoisyToken* out) {
      ++sifts;
      return (*cpu::ChooseTable("scalar"))->sift_noise(sift, out);
    };
    return table;
  }
};

TEST(RowSampler, RunsOnItsOwnTableAlone) {
  const std::vector<float> logits = RandomFloats(3000, 1, 8.0F);
  const cpu::KernelTable table = CountedTable::Make();
  const RowSampler rows(table);
  std::vector<int32_t> ids;
  rows.Sample(logits, {.top_p = 0.5F}, {});              // Maxima, sums, noise.
  rows.Sample(logits, {.top_k = 9, .top_p = 0.5F}, {});  // The same.
  rows.LogSumExp(logits);                                // Maxima, sum.
  rows.ArgMax(logits);                                   // Maxima.
  rows.Top(logits, 5, &ids);                             // Maxima.
  EXPECT_EQ(CountedTable::maxima, 5);
  EXPECT_GE(CountedTable::sums, 3);
  EXPECT_GE(CountedTable::sifts, 2);
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

// Rows as models give them, and worse: `shape` of kShapes.
constexpr int kShapes = 6;
std::vector<float> RowOf(const int shape, const size_t size, const uint32_t seed) {
  std::vector<float> logits = RandomFloats(size, seed, shape == 0 ? 16.0F : 6.0F);
  if (shape == 1) logits[size / 3] = 30.0F;  // Nearly certain.
  for (size_t i = 0; i < size; ++i) {
    float& logit = logits[i];
    if (shape == 2) logit = std::round(logit);  // Ties.
    if (shape == 3) logit = 1.0F;               // Flat.
    if (shape == 4 && i % 3 == 0) logit = i % 2 == 0 ? -kInfinity : std::nanf("");
    if (shape == 5) logit *= 1e-39F;  // Denormals: flushed where probabilities are computed, not where maxima are.
  }
  return logits;
}

// The definition, id by id: nothing is passed over, and sums have the order of the ones that decide.
int32_t PlainSample(const std::vector<float>& logits, const SampleSettings& s, const NoiseKey& key) {
  const cpu::KernelTable& table = *cpu::ChooseTable({}).value();
  const float largest = logits[Best().ArgMax(logits)];
  const FlushDenormals flush;
  std::vector<int32_t> ids;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > -kInfinity) ids.push_back(static_cast<int32_t>(id));
  }
  std::stable_sort(ids.begin(), ids.end(), [&](const int32_t a, const int32_t b) { return logits[a] > logits[b]; });
  const bool by_k = s.top_k > 0 && s.top_k < std::ssize(logits);
  if (by_k) ids.resize(std::min<size_t>(ids.size(), s.top_k));
  if (s.top_p < 1.0F) {
    std::vector<float> values(logits);
    if (by_k) {
      values.clear();
      for (const int32_t id : ids) values.push_back(logits[id]);
    }
    std::vector<float> terms(values.size());
    const double wanted =
        table.exp_sum(values.data(), std::ssize(values), largest, s.temperature, terms.data()) * s.top_p;
    const auto bucket = [&](const size_t i) {
      return std::min(1023.0, std::floor((static_cast<double>(largest) - logits[ids[i]]) * (32.0 / s.temperature)));
    };
    const auto term = [&](const size_t i) { return by_k ? terms[i] : terms[ids[i]]; };
    double sum = 0.0;
    size_t i = 0;
    // Whole buckets first, where all ids take part.
    for (size_t end = 0; !by_k && i < ids.size() && bucket(i) < 1023.0; i = end) {
      double whole = 0.0;
      for (end = i; end < ids.size() && bucket(end) == bucket(i); ++end) whole += term(end);
      if (!(sum + whole < wanted)) break;
      sum += whole;
    }
    while (i + 1 < ids.size() && (sum += term(i)) < wanted && (by_k || bucket(i + 1) == bucket(i))) ++i;
    ids.resize(std::min(i + 1, ids.size()));
  }
  int32_t best = -1;
  double best_score = -INFINITY;
  for (const int32_t id : ids) {
    const double scaled = (static_cast<double>(logits[id]) - largest) / s.temperature;
    if (s.min_p > 0.0F && scaled < NaturalLog(s.min_p)) continue;
    const double score = scaled + GumbelOf(TokenNoise(key, static_cast<uint32_t>(id / 4))[id % 4]);
    if (score < best_score || (score == best_score && id > best)) continue;
    best_score = score;
    best = id;
  }
  return best;
}

TEST(RowSampler, PassesOverNothingThatCouldWin) {
  uint32_t seed = 0;
  for (const size_t size : {3, 17, 255, 257, 20000}) {
    for (int shape = 0; shape < kShapes; ++shape) {
      for (const float temperature : {kGreedyBelow, 0.7F, 1.0F, 30.0F, 3e38F}) {
        for (const int32_t top_k : {0, 1, 40}) {
          for (const float top_p : {1.0F, 0.0F, 0.5F, 0.95F, 0.99999F}) {
            for (const float min_p : {0.0F, 0.05F, 1.0F}) {
              const std::vector<float> logits = RowOf(shape, size, ++seed);
              const SampleSettings s{temperature, top_k, top_p, min_p};
              const NoiseKey key{uint64_t{seed} << 31, seed % 3, seed};
              ASSERT_EQ(Best().Sample(logits, s, key), PlainSample(logits, s, key))
                  << size << " " << shape << " " << temperature << " " << top_k << " " << top_p << " " << min_p;
            }
          }
        }
      }
    }
  }
}

TEST(SiftNoise, FindsTheWordsOfTheDefinition) {
  for (const std::string& isa : cpu::DetectedIsas()) {
    const cpu::KernelTable& table = *cpu::ChooseTable(isa).value();
    for (const int32_t n : {1, 3, 4, 15, 16, 17, 33, 255, 256}) {
      for (const uint32_t least_word : {0U, 1U << 31, 0xf8000000U}) {
        for (const float least_logit : {-kInfinity, 0.0F, 5.0F, 100.0F}) {
          std::vector<float> x = RandomFloats(static_cast<size_t>(n), static_cast<uint32_t>(n), 9.0F);
          if (n > 2) x[1] = std::nanf("");
          const NoiseKey key{0x123456789abcdefULL, 2, 77};
          const int32_t first = 1024;
          std::vector<cpu::NoisyToken> got(static_cast<size_t>(n));
          got.resize(static_cast<size_t>(table.sift_noise(
              {x.data(), n, first, least_logit, least_word, key.seed, key.output_index, key.position}, got.data())));
          std::sort(got.begin(), got.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
          size_t found = 0;
          for (int32_t i = 0; i < n; ++i) {
            const uint32_t word = TokenNoise(key, static_cast<uint32_t>(first + i) / 4)[(first + i) % 4];
            if (!(x[i] >= least_logit) || word < least_word) continue;
            ASSERT_LT(found, got.size()) << isa << " " << n;
            EXPECT_EQ(got[found].id, first + i) << isa;
            EXPECT_EQ(got[found].word, word) << isa;
            ++found;
          }
          EXPECT_EQ(found, got.size()) << isa << " " << n;
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
