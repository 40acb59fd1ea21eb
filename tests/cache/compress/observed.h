// An observation with all that any kind asks for, of a made-up layer.
#pragma once

#include <vector>

#include "cache/compressor.h"
#include "tests/cache/compress/generators.h"

namespace invar::cache {

struct Observed {
  static constexpr int32_t kWindow = 64;
  static constexpr int64_t kSpread = 128;

  // Two query heads a KV head; `tokens` verified.
  Observed(const Layer& layer, const int64_t tokens, const uint64_t seed) {
    SplitMix64 random(seed);
    query_heads = 2 * layer.shape.kv_heads;
    window = static_cast<int32_t>(std::min<int64_t>(kWindow, tokens));
    const auto fill = [&](std::vector<float>& into, const int64_t count, const bool positive) {
      into.resize(count);
      for (float& x : into) {
        const double value = Normal(random);
        x = static_cast<float>(positive ? std::abs(value) : value);
      }
    };
    fill(queries, query_heads * window * layer.dim(), false);
    stride = SpreadStride(tokens, kSpread);
    fill(spread, query_heads * ((tokens + stride - 1) / stride) * layer.dim(), false);
    fill(second_pass, layer.shape.kv_heads * tokens, true);
    fill(mean, query_heads * layer.dim(), false);
    covariance.assign(query_heads * layer.dim() * layer.dim(), 0.0F);
    for (int64_t i = 0; i < query_heads * layer.dim(); ++i) {
      covariance[i * layer.dim() + i % layer.dim()] = 1.0F + 0.1F * static_cast<float>(i % 7);
    }
  }

  Observation view() const {
    return {.query_heads = query_heads,
            .queries = queries,
            .window = window,
            .spread_queries = spread,
            .spread_stride = stride,
            .second_pass = second_pass,
            .query_mean = mean,
            .query_covariance = covariance};
  }

  int32_t query_heads = 0;
  int32_t window = 0;
  int64_t stride = 1;
  std::vector<float> queries, spread, second_pass, mean, covariance;
};

}  // namespace invar::cache
