// Budgets of layers: what is promised of their sum and ends, and that following similarity errs less than equal shares.
#include "cache/layer_budgets.h"

#include <gtest/gtest.h>

#include <numeric>

#include "cache/compressor.h"
#include "tests/cache/compress/generators.h"
#include "tests/cache/compress/plain_attention.h"

namespace invar::cache {
namespace {

KeySimilarity Distance(const double mean_distance) {
  KeySimilarity out;
  out.mean_distance = mean_distance;
  return out;
}

TEST(LayerBudgets, AddUpAndFollowTheRootOfTheDistance) {
  const std::vector<KeySimilarity> layers = {Distance(0.01), Distance(0.04), Distance(0.09)};
  EXPECT_EQ(LayerBudgets(600, 1000, layers), (std::vector<int64_t>{100, 200, 300}));
  EXPECT_EQ(LayerBudgets(3000, 1000, layers), (std::vector<int64_t>{1000, 1000, 1000}));
  EXPECT_EQ(LayerBudgets(9999, 1000, layers), (std::vector<int64_t>{1000, 1000, 1000})) << "no more than there are";
  EXPECT_EQ(LayerBudgets(2100, 1000, layers), (std::vector<int64_t>{367, 733, 1000})) << "what is full shares the rest";
  EXPECT_EQ(LayerBudgets(0, 1000, layers), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_TRUE(LayerBudgets(10, 1000, {}).empty());
}

TEST(LayerBudgets, LeaveAQuarterOfTheEvenShareToAny) {
  const std::vector<KeySimilarity> layers = {Distance(0.0), Distance(0.5), Distance(0.5)};
  EXPECT_EQ(LayerBudgets(1200, 1000, layers), (std::vector<int64_t>{100, 550, 550}));
}

TEST(LayerBudgets, AddUpOnAnything) {
  SplitMix64 random(5);
  for (int i = 0; i < 300; ++i) {
    std::vector<KeySimilarity> layers(1 + random.Next() % 40);
    for (KeySimilarity& layer : layers) layer = Distance(static_cast<double>(random.Next() % 1000) * 1e-3);
    const auto tokens = static_cast<int64_t>(random.Next() % 5000);
    const auto total = static_cast<int64_t>(random.Next() % 100'000);
    const std::vector<int64_t> budgets = LayerBudgets(total, tokens, layers);
    EXPECT_EQ(std::accumulate(budgets.begin(), budgets.end(), int64_t{0}),
              std::min<int64_t>(total, tokens * static_cast<int64_t>(layers.size())));
    for (const int64_t budget : budgets) {
      EXPECT_GE(budget, std::min<int64_t>(tokens, total / static_cast<int64_t>(layers.size()) / 4));
      EXPECT_LE(budget, tokens);
    }
  }
}

TEST(KeySimilarity, CountsEveryTokenOnce) {
  const Layer layer = MakeLayer({.shape = {2, 64, kernels::DType::kF32}, .tokens = 1000, .needles = 4});
  const KeySimilarity seen = MeasureKeySimilarity(layer.shape, layer.rows(), 64);
  EXPECT_EQ(std::accumulate(seen.counts.begin(), seen.counts.end(), int64_t{0}), 2000);
  EXPECT_GT(seen.counts[19], 1200) << "most steps of 0.97, whose cosines scatter by a few hundredths";
  const int64_t unlike = std::accumulate(seen.counts.begin(), seen.counts.begin() + 12, int64_t{0});
  EXPECT_GE(unlike, 40) << "most of the 48 needles";
  EXPECT_LE(unlike, 60);
  EXPECT_EQ(MeasureKeySimilarity(layer.shape, layer.rows(0, 0), 64).mean_distance, 0.0);
}

TEST(LayerBudgets, ErrLessThanEqualShares) {
  const Layer layers[] = {MakeLayer({.rho = 0.995, .seed = 3}), MakeLayer({.rho = 0.9, .seed = 4})};
  std::vector<KeySimilarity> seen;
  for (const Layer& layer : layers) seen.push_back(MeasureKeySimilarity(layer.shape, layer.rows(), 64));
  const auto compressor = std::move(MakeCompressor("centroid:floor_min=-1").value());
  const auto error = [&](const std::vector<int64_t>& budgets) {
    double sum = 0.0;
    for (size_t l = 0; l < 2; ++l) {
      SplitMix64 random(9);
      std::vector<std::vector<float>> queries;
      for (int i = 0; i < 48; ++i) {
        queries.push_back(QueryFor(layers[l], 0, random.Next() % 4096, 4100 + i, 1.0, 0.5, random));
      }
      const CompressedLayer view =
          compressor->Prefill(layers[l].shape, layers[l].rows(), {.budget = Budget::Slots(budgets[l])});
      EXPECT_EQ(view.missed_slots(), 0);
      sum += RelativeError(FullRows(layers[l].rows(), 0), ViewRows(view).Head(0), queries);
    }
    return sum;
  };
  const std::vector<int64_t> budgets = LayerBudgets(2048, 4096, seen);
  EXPECT_LT(budgets[0], 800);
  EXPECT_LT(error(budgets), 0.9 * error({1024, 1024}));
}

}  // namespace
}  // namespace invar::cache
