// The baselines of CentroidKV: what value_merge and kmeans make of runs of similar keys.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cache/compressor.h"
#include "tests/cache/compress/generators.h"
#include "tests/cache/compress/plain_attention.h"

namespace invar::cache {
namespace {

constexpr int64_t kTokens = 324;  // 4 sinks, 252 in reach of merging, 64 recent and 4 that make pages whole.
constexpr int64_t kBegin = 4;
constexpr int64_t kReach = 252;
constexpr int64_t kRuns = 60;  // What is left of the reach when 192 slots go.

int64_t RunOf(const int64_t token) { return (token - kBegin) * kRuns / kReach; }

// Keys of a run point the same way; the n-th of it is longer by n thousandths.
Layer Runs() {
  Layer layer = MakeLayer({.shape = {1, 64, kernels::DType::kF32}, .tokens = kTokens, .seed = 3});
  for (int64_t t = kBegin; t < kBegin + kReach; ++t) {
    float* key = layer.keys.data() + t * layer.dim();
    std::fill_n(key, layer.dim(), 0.0F);
    int64_t nth = 0;
    while (t - nth > kBegin && RunOf(t - nth - 1) == RunOf(t)) ++nth;
    key[RunOf(t)] = 1.0F + 0.001F * static_cast<float>(nth);
  }
  return layer;
}

void ExpectRunsBecomeSlots(const std::string& kind, const bool keys_stay) {
  const Layer layer = Runs();
  const CompressedLayer view = std::move(MakeCompressor(kind).value())
                                   ->Prefill(layer.shape, layer.rows(), {.budget = Budget::Slots(kTokens - 192)});
  view.CheckIntegrity();
  ASSERT_EQ(view.slots(), kTokens - 192);
  const ViewRows rows(view);
  for (int64_t run = 0; run < kRuns; ++run) {
    double key = 0.0;
    double value = 0.0;
    int64_t count = 0;
    double last_key = 0.0;
    for (int64_t t = kBegin; t < kBegin + kReach; ++t) {
      if (RunOf(t) != run) continue;
      last_key = layer.rows().key(0, t)[run];
      key += last_key;
      value += layer.rows().value(0, t)[0];
      ++count;
    }
    const int64_t slot = kBegin + run;
    EXPECT_EQ(rows.mark(0, slot).degree, count) << run;
    EXPECT_NEAR(rows.value(0, slot)[0], value / static_cast<double>(count), 1e-6) << run;
    if (keys_stay) {
      EXPECT_EQ(rows.key(0, slot)[run], static_cast<float>(last_key)) << "the last of a run stays as it is";
    } else {
      EXPECT_NEAR(rows.key(0, slot)[run], key / static_cast<double>(count), 1e-6) << run;
    }
  }
}

TEST(ValueMerge, LeavesKeysAndMergesValuesIntoTheMostSimilar) { ExpectRunsBecomeSlots("value_merge:chunk=252", true); }

TEST(KMeans, MakesMeansOfKeysAndValues) { ExpectRunsBecomeSlots("kmeans", false); }

TEST(KMeans, GivesEveryClusterASlot) {
  // All keys alike: every slot is nearest to the first centre.
  Layer layer = Runs();
  std::fill(layer.keys.begin(), layer.keys.end(), 1.0F);
  const CompressedLayer view = std::move(MakeCompressor("kmeans").value())
                                   ->Prefill(layer.shape, layer.rows(), {.budget = Budget::Slots(kTokens - 192)});
  view.CheckIntegrity();
  EXPECT_EQ(view.slots(), kTokens - 192);
  EXPECT_EQ(view.missed_slots(), 0);
}

}  // namespace
}  // namespace invar::cache
