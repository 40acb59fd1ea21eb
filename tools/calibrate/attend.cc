// See attend.h.
#include "tools/calibrate/attend.h"

#include <algorithm>
#include <cmath>

namespace invar::calibrate {

engine::FloatRows Attend(const kernels::AttentionShape& shape, const engine::FloatRows& queries,
                         const engine::ScdKv& kv, const std::span<double> mass) {
  engine::FloatRows out(queries.rows, queries.cols);
  std::vector<float> weights(static_cast<size_t>(kv.keys.rows));
  const int64_t dim = shape.head_dim;
  for (int64_t r = 0; r < queries.rows; ++r) {
    for (int32_t head = 0; head < shape.heads; ++head) {
      const float* const q = queries.row(r) + head * dim;
      const int64_t kv_at = head / (shape.heads / shape.kv_heads) * dim;
      float largest = -INFINITY;
      for (int64_t t = 0; t < kv.keys.rows; ++t) {
        const float* const k = kv.keys.row(t) + kv_at;
        float dot = 0.0F;
        for (int64_t d = 0; d < dim; ++d) dot += q[d] * k[d];
        weights[static_cast<size_t>(t)] = dot * shape.scale;
        largest = std::max(largest, dot * shape.scale);
      }
      float sum = 0.0F;
      for (float& weight : weights) sum += weight = std::exp(weight - largest);
      float* const to = out.row(r) + head * dim;
      for (int64_t t = 0; t < kv.keys.rows; ++t) {
        const float share = weights[static_cast<size_t>(t)] / sum;
        if (!mass.empty()) mass[static_cast<size_t>(t)] += static_cast<double>(share);
        const float* const v = kv.values.row(t) + kv_at;
        for (int64_t d = 0; d < dim; ++d) to[d] += share * v[d];
      }
    }
  }
  return out;
}

double MeanCosine(const kernels::AttentionShape& shape, const engine::FloatRows& a, const engine::FloatRows& b) {
  const int64_t dim = shape.head_dim;
  double sum = 0.0;
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t head = 0; head < a.cols; head += dim) {
      double ab = 0.0;
      double aa = 1e-30;
      double bb = 1e-30;
      for (int64_t d = head; d < head + dim; ++d) {
        ab += static_cast<double>(a.row(r)[d]) * b.row(r)[d];
        aa += static_cast<double>(a.row(r)[d]) * a.row(r)[d];
        bb += static_cast<double>(b.row(r)[d]) * b.row(r)[d];
      }
      sum += ab / std::sqrt(aa * bb);
    }
  }
  return sum / static_cast<double>(a.rows * (a.cols / dim));
}

}  // namespace invar::calibrate
