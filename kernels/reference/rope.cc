// RopeAngles: cos and sin of position * inverse_frequency, times a factor.
// QkvPrepare: per head norm, then rotation of pairs (i, i + rotary / 2); k and v go into their page.
#include <cmath>
#include <vector>

#include "kernels/reference/ops.h"

namespace invar::kernels::reference {
namespace {

// One head of q or k: norm (where `weight` is given), then rope by the angles of row t.
std::vector<float> NormAndRotate(const float* x, const QkvArgs& args, std::span<const float> weight, const int64_t t) {
  const int32_t dim = args.shape.head_dim;
  std::vector<double> y(x, x + dim);
  if (!weight.empty()) {
    double sum = 0.0;
    for (const double value : y) sum += value * value;
    const double scale = 1.0 / std::sqrt(sum / dim + args.norm_eps);
    for (int32_t i = 0; i < dim; ++i) y[i] *= scale * weight[i];
  }
  const int64_t half = args.cos.cols;
  for (int64_t i = 0; i < half; ++i) {
    const double cos = args.cos.row(t)[i];
    const double sin = args.sin.row(t)[i];
    const double first = y[i];
    const double second = y[i + half];
    y[i] = first * cos - second * sin;
    y[i + half] = second * cos + first * sin;
  }
  return std::vector<float>(y.begin(), y.end());
}

}  // namespace

void RopeAngles(std::span<const int32_t> positions, std::span<const double> inverse_frequencies, const double factor,
                const F32View cos, const F32View sin) {
  for (size_t t = 0; t < positions.size(); ++t) {
    for (size_t i = 0; i < inverse_frequencies.size(); ++i) {
      const double angle = positions[t] * inverse_frequencies[i];
      cos.row(t)[i] = static_cast<float>(std::cos(angle) * factor);
      sin.row(t)[i] = static_cast<float>(std::sin(angle) * factor);
    }
  }
}

void QkvPrepare(const QkvArgs& args) {
  const AttentionShape& shape = args.shape;
  const int64_t dim = shape.head_dim;
  for (const KvSpan& span : args.spans) {
    for (int32_t r = 0; r < span.rows; ++r) {
      const int64_t t = span.row_begin + r;
      const int64_t position = span.first_position + r;
      float* page = reinterpret_cast<float*>(span.kv.page(position / kPageTokens));
      for (int64_t h = 0; h < shape.heads; ++h) {
        const std::vector<float> q = NormAndRotate(args.q.row(t) + h * args.q_head_stride, args, args.q_norm, t);
        std::copy(q.begin(), q.end(), RowOf(args.q_out, t) + h * dim);
      }
      if (position < span.write_from) continue;
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        const std::vector<float> k = NormAndRotate(args.k.row(t) + h * dim, args, args.k_norm, t);
        float* key = page + (2 * h * kPageTokens + position % kPageTokens) * dim;
        std::copy(k.begin(), k.end(), key);
        std::copy(args.v.row(t) + h * dim, args.v.row(t) + (h + 1) * dim, key + kPageTokens * dim);
      }
    }
  }
}

}  // namespace invar::kernels::reference
