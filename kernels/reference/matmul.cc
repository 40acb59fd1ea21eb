// out[t, n] = sum_k x[t, k] weight[n, k] (+ bias[n]), stored or added. The sum runs over k ascending, in double.
#include <cmath>

#include "kernels/bf16.h"
#include "kernels/reference/ops.h"

namespace invar::kernels::reference {

double WeightAt(const PackedMatrix& weight, const int64_t row, const int64_t col) {
  const int64_t index = row * weight.cols + col;
  if (weight.dtype == DType::kF32) return static_cast<const float*>(weight.data)[index];
  return FloatFromBf16(static_cast<const uint16_t*>(weight.data)[index]);
}

double Sigmoid(const double x) { return 1.0 / (1.0 + std::exp(-x)); }
double Silu(const double x) { return x * Sigmoid(x); }

void Linear(const Activations& x, const PackedMatrix& weight, std::span<const float> bias, const LinearMode mode,
            const F32View out) {
  for (int64_t t = 0; t < x.rows; ++t) {
    const float* row = RowOf(x, t);
    for (int64_t n = 0; n < weight.rows; ++n) {
      double sum = bias.empty() ? 0.0 : bias[n];
      for (int64_t k = 0; k < weight.cols; ++k) sum += row[k] * WeightAt(weight, n, k);
      float& target = out.row(t)[n];
      target = static_cast<float>(mode == LinearMode::kAdd ? target + sum : sum);
    }
  }
}

}  // namespace invar::kernels::reference
