// RmsNorm: out = x / sqrt(mean(x^2) + eps) * weight. GatedRmsNorm: the same per head of weight.size() columns, *
// silu(z).
#include <cmath>

#include "kernels/reference/ops.h"

namespace invar::kernels::reference {
namespace {

double InverseRms(const float* x, const int64_t n, const float eps) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return 1.0 / std::sqrt(sum / static_cast<double>(n) + eps);
}

}  // namespace

void RmsNorm(const ConstF32View x, std::span<const float> weight, const float eps, const Activations& out) {
  for (int64_t t = 0; t < x.rows; ++t) {
    const double scale = InverseRms(x.row(t), x.cols, eps);
    for (int64_t i = 0; i < x.cols; ++i) RowOf(out, t)[i] = static_cast<float>(x.row(t)[i] * scale * weight[i]);
  }
}

void GatedRmsNorm(const ConstF32View x, const ConstF32View z, std::span<const float> weight, const float eps,
                  const Activations& out) {
  const int64_t dim = static_cast<int64_t>(weight.size());
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t head = 0; head < x.cols; head += dim) {
      const double scale = InverseRms(x.row(t) + head, dim, eps);
      for (int64_t i = 0; i < dim; ++i) {
        const double y = x.row(t)[head + i] * scale * weight[i] * Silu(z.row(t)[head + i]);
        RowOf(out, t)[head + i] = static_cast<float>(y);
      }
    }
  }
}

}  // namespace invar::kernels::reference
