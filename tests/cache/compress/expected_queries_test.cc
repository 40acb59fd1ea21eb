// Moments of expected queries against sums done by hand, and what they are for: keys that will be looked at are kept.
#include "cache/expected_queries.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cache/compressor.h"
#include "tests/cache/compress/generators.h"

namespace invar::cache {
namespace {

// The frequencies of RotateQuarter.
std::vector<double> Frequencies(const int64_t dim) {
  std::vector<double> out;
  for (int64_t i = 0; i < dim / 8; ++i) out.push_back(std::pow(10000.0, -static_cast<double>(i) / (dim / 8)));
  return out;
}

TEST(ExpectedQueries, TurnBackWhatRopeTurned) {
  constexpr int64_t kDim = 16;
  constexpr int64_t kWindow = 40;
  SplitMix64 random(1);
  std::vector<float> plain(kWindow * kDim);
  for (float& x : plain) x = static_cast<float>(Normal(random));
  std::vector<float> turned = plain;
  for (int64_t w = 0; w < kWindow; ++w) RotateQuarter(turned.data() + w * kDim, kDim, 1000 + w);
  const std::vector<double> frequencies = Frequencies(kDim);
  const QueryMoments moments = ExpectedQueries({.queries = turned,
                                                .query_heads = 1,
                                                .window = kWindow,
                                                .dim = kDim,
                                                .first_position = 1000,
                                                .inverse_frequencies = frequencies},
                                               1);
  std::vector<float> mean(kDim, 0.0F);
  for (int64_t w = 0; w < kWindow; ++w) {
    for (int64_t i = 0; i < kDim; ++i) mean[i] += plain[w * kDim + i] / kWindow;
  }
  RotateQuarter(mean.data(), kDim, 1000 + kWindow);  // One future position: the mean turn is its turn.
  for (int64_t i = 0; i < kDim; ++i) EXPECT_NEAR(moments.mean[i], mean[i], 1e-5) << i;
  // Turning keeps the trace, and the untouched dims have their plain covariance.
  double trace = 0.0;
  double plain_trace = 0.0;
  for (int64_t i = 0; i < kDim; ++i) {
    trace += moments.covariance[i * kDim + i];
    double m = 0.0;
    double mm = 0.0;
    for (int64_t w = 0; w < kWindow; ++w) {
      m += plain[w * kDim + i] / static_cast<double>(kWindow);
      mm += plain[w * kDim + i] * plain[w * kDim + i] / static_cast<double>(kWindow);
    }
    plain_trace += mm - m * m;
    if (i >= kDim / 4) {
      EXPECT_NEAR(moments.covariance[i * kDim + i], mm - m * m, 1e-5);
    }
    for (int64_t j = 0; j < kDim; ++j) {
      EXPECT_NEAR(moments.covariance[i * kDim + j], moments.covariance[j * kDim + i], 1e-6);
    }
  }
  EXPECT_NEAR(trace, plain_trace, 1e-4);
}

TEST(ExpectedQueries, LetTheDimsThatTurnFastCancel) {
  constexpr int64_t kDim = 16;
  const std::vector<float> ones(kDim, 1.0F);
  const std::vector<double> frequencies = Frequencies(kDim);
  const QueryMoments moments = ExpectedQueries(
      {.queries = ones, .query_heads = 1, .window = 1, .dim = kDim, .inverse_frequencies = frequencies}, 512);
  EXPECT_NEAR(moments.mean[0], 0.0, 0.02) << "a radian a token";
  EXPECT_EQ(moments.mean[kDim - 1], 1.0F) << "not turned at all";
}

TEST(ExpectedAttention, KeepsTheKeysThatQueriesLookFor) {
  const kernels::PageShape shape = {.kv_heads = 1, .head_dim = 64, .dense = kernels::DType::kF32};
  const Layer layer = MakeLayer({.shape = shape, .tokens = 1000, .rho = 0.0});
  const std::vector<double> frequencies = Frequencies(64);
  SplitMix64 random(2);
  std::vector<float> queries;
  for (int64_t w = 0; w < 64; ++w) {
    const std::vector<float> q = QueryFor(layer, 0, 300 + w % 2 * 200, 936 + w, 1.0, 0.2, random);
    queries.insert(queries.end(), q.begin(), q.end());
  }
  const QueryMoments moments = ExpectedQueries({.queries = queries,
                                                .query_heads = 1,
                                                .window = 64,
                                                .dim = 64,
                                                .first_position = 936,
                                                .inverse_frequencies = frequencies},
                                               512);
  const auto compressor = std::move(MakeCompressor("expected_attention:sinks=0,recent=0").value());
  const CompressedLayer view = compressor->Prefill(
      shape, layer.rows(),
      {.observation = {.query_heads = 1, .query_mean = moments.mean, .query_covariance = moments.covariance},
       .budget = Budget::Slots(8)});
  std::vector<uint32_t> kept;
  for (const SlotMark& mark : view.tail_marks()) kept.push_back(mark.position);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 300u), 1);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 500u), 1);
}

}  // namespace
}  // namespace invar::cache
