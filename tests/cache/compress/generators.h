// Made-up layers for tests of compressors: keys that resemble their neighbours as those of text do, keys that are like
// no other, and queries that look for them. All from one seed, the same everywhere.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/split_mix64.h"
#include "kernels/bf16.h"
#include "kernels/kv_encoding.h"

namespace invar::cache {

// Nearly normal: the sum of twelve uniforms less six. No library function, so the same bits everywhere.
inline double Normal(SplitMix64& random) {
  double sum = -6.0;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random.Next() >> 11) * 0x1p-53;
  return sum;
}

// Rows of one layer, head by head: [kv_heads][tokens][dim].
struct Layer {
  kernels::PageShape shape;
  int64_t tokens = 0;
  std::vector<float> keys{};
  std::vector<float> values{};
  std::vector<float> unrotated{};  // The keys before rope.
  std::vector<int64_t> needles{};  // Positions of outlier keys.

  int64_t dim() const { return shape.head_dim; }
  kernels::ConstKvRows rows() const {
    return {keys.data(), values.data(), tokens, tokens * shape.head_dim, shape.head_dim};
  }
  kernels::ConstKvRows rows(const int64_t begin, const int64_t count) const { return rows().Slots(begin, count); }
};

struct LayerOptions {
  kernels::PageShape shape{.kv_heads = 1, .head_dim = 64, .dense = kernels::DType::kF32};
  int64_t tokens = 4096;
  double rho = 0.97;        // Of the AR(1) process that keys and values follow over tokens.
  int32_t needles = 0;      // Spans of keys that are like no other.
  int32_t needle_span = 6;  // Tokens of each: a UUID takes several.
  uint64_t seed = 1;
};

// Rope on the first quarter of the dims, pairs (i, i + half).
inline void RotateQuarter(float* row, const int64_t dim, const int64_t position) {
  const int64_t half = dim / 8;
  for (int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(i) / half);
    const double x = row[i];
    const double y = row[i + half];
    row[i] = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
    row[i + half] = static_cast<float>(y * std::cos(angle) + x * std::sin(angle));
  }
}

inline Layer MakeLayer(const LayerOptions& options) {
  Layer layer{.shape = options.shape, .tokens = options.tokens};
  const int64_t dim = options.shape.head_dim;
  SplitMix64 random(options.seed);
  const double fresh = std::sqrt(1.0 - options.rho * options.rho);
  const auto walk = [&](std::vector<float>& rows) {
    for (int32_t h = 0; h < options.shape.kv_heads; ++h) {
      std::vector<double> state(dim);
      for (double& x : state) x = Normal(random);
      for (int64_t t = 0; t < options.tokens; ++t) {
        for (double& x : state) x = options.rho * x + fresh * Normal(random);
        rows.insert(rows.end(), state.begin(), state.end());
      }
    }
  };
  walk(layer.unrotated);
  walk(layer.values);
  for (int32_t n = 0; n < options.needles; ++n) {
    const int64_t first =
        options.tokens * (2 * n + 1) / (2 * options.needles) + static_cast<int64_t>(random.Next() % 7);
    for (int32_t i = 0; i < options.needle_span; ++i) layer.needles.push_back(first + i);
  }
  for (int32_t h = 0; h < options.shape.kv_heads; ++h) {
    for (const int64_t t : layer.needles) {
      for (int64_t i = 0; i < dim; ++i) {
        layer.unrotated[(h * options.tokens + t) * dim + i] = static_cast<float>(Normal(random));
        layer.values[(h * options.tokens + t) * dim + i] = static_cast<float>(Normal(random));
      }
    }
  }
  layer.keys = layer.unrotated;
  for (int32_t h = 0; h < options.shape.kv_heads; ++h) {
    for (int64_t t = 0; t < options.tokens; ++t) {
      RotateQuarter(layer.keys.data() + (h * options.tokens + t) * dim, dim, t);
    }
  }
  if (options.shape.dense == kernels::DType::kBf16) {
    for (std::vector<float>* rows : {&layer.keys, &layer.values}) {
      for (float& x : *rows) x = kernels::FloatFromBf16(kernels::Bf16FromFloat(x));
    }
  }
  return layer;
}

// A query at `position` that looks for the token at `target` of head `h`: its key and noise, `sharpness` times as long.
inline std::vector<float> QueryFor(const Layer& layer, const int64_t h, const int64_t target, const int64_t position,
                                   const double sharpness, const double noise, SplitMix64& random) {
  std::vector<float> query(layer.dim());
  for (int64_t i = 0; i < layer.dim(); ++i) {
    const double key = layer.unrotated[(h * layer.tokens + target) * layer.dim() + i];
    query[i] = static_cast<float>(sharpness * (key + noise * Normal(random)));
  }
  RotateQuarter(query.data(), layer.dim(), position);
  return query;
}

}  // namespace invar::cache
