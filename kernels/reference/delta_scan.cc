// Gated delta rule, one token after another (formula in backend.h). The state is kept in float between tokens.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/ops.h"
#include "kernels/shared/emit.h"

namespace invar::kernels::reference {
namespace {

std::vector<double> L2Normalised(const float* x, const int64_t n, const double scale) {
  double sum = 1e-6;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  std::vector<double> y(x, x + n);
  for (double& value : y) value *= scale / std::sqrt(sum);
  return y;
}

void StepHead(const DeltaArgs& args, const StateSpan& span, const int64_t t, const int64_t h) {
  const DeltaShape& shape = args.shape;
  const int64_t dim_k = shape.dim_k;
  const int64_t dim_v = shape.dim_v;
  const int64_t key_head = h / (shape.heads_v / shape.heads_k);
  const float* row = args.qkv.row(t);
  const std::vector<double> q =
      L2Normalised(row + key_head * dim_k, dim_k, 1.0 / std::sqrt(static_cast<double>(dim_k)));
  const std::vector<double> k = L2Normalised(row + (shape.heads_k + key_head) * dim_k, dim_k, 1.0);
  const float* v = row + 2 * shape.heads_k * dim_k + h * dim_v;
  const double beta = Sigmoid(args.b.row(t)[h]);
  const double x = static_cast<double>(args.a.row(t)[h]) + args.dt_bias[h];
  const double softplus = x > 20.0 ? x : std::log1p(std::exp(x));
  const double decay = std::exp(-std::exp(static_cast<double>(args.a_log[h])) * softplus);
  float* state = span.recurrent + h * dim_k * dim_v;
  for (int64_t c = 0; c < dim_v; ++c) {
    double read = 0.0;
    for (int64_t i = 0; i < dim_k; ++i) read += decay * state[i * dim_v + c] * k[i];
    const double error = beta * (v[c] - read);
    double out = 0.0;
    for (int64_t i = 0; i < dim_k; ++i) {
      const double updated = decay * state[i * dim_v + c] + k[i] * error;
      state[i * dim_v + c] = static_cast<float>(updated);
      out += updated * q[i];
    }
    args.out.row(t)[h * dim_v + c] = static_cast<float>(out);
  }
}

}  // namespace

void DeltaScan(const DeltaArgs& args) {
  const DeltaShape& shape = args.shape;
  const int64_t state_size = int64_t{shape.heads_v} * shape.dim_k * shape.dim_v;
  CheckEmits(args.spans);
  for (const StateSpan& span : args.spans) {
    const auto run = [&](const int64_t begin, const int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t h = 0; h < shape.heads_v; ++h) StepHead(args, span, span.row_begin + r, h);
      }
    };
    const auto emit = [&](const EmittedState& to) { std::copy_n(span.recurrent, state_size, to.recurrent); };
    ForRowsBetweenEmits(span, 0, span.rows, run, emit);
  }
}

}  // namespace invar::kernels::reference
