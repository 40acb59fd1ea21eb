// out[t] += sum over the top_k experts e of row t, ascending e, of w_e down_e(silu(gate_e x) * up_e x).
// w = softmax over all experts (ties to the lowest index), divided by the sum of the chosen where asked.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/reference/ops.h"

namespace invar::kernels::reference {
namespace {

double Dot(const float* x, const PackedMatrix& weight, const int64_t row) {
  double sum = 0.0;
  for (int64_t k = 0; k < weight.cols; ++k) sum += x[k] * WeightAt(weight, row, k);
  return sum;
}

// With both parts of the weight.
double Dot(const float* x, const std::span<const PackedMatrix> weights, const std::span<const PackedMatrix> residuals,
           const int32_t expert, const int64_t row) {
  const bool rest = !residuals.empty() && residuals[expert].data != nullptr;
  return Dot(x, weights[expert], row) + (rest ? Dot(x, residuals[expert], row) : 0.0);
}

void AddExpert(const ExpertsArgs& args, const int32_t expert, const float* x, const double weight,
               std::vector<double>& sum) {
  const int64_t inner = args.gate_up[expert].rows / 2;
  const auto gate_up = [&](const int64_t row) { return Dot(x, args.gate_up, args.gate_up_residual, expert, row); };
  std::vector<float> y(inner);
  for (int64_t i = 0; i < inner; ++i) y[i] = static_cast<float>(Silu(gate_up(i)) * gate_up(inner + i));
  for (size_t n = 0; n < sum.size(); ++n) {
    sum[n] += weight * Dot(y.data(), args.down, args.down_residual, expert, static_cast<int64_t>(n));
  }
}

}  // namespace

void Experts(const ExpertsArgs& args) {
  const int64_t count = args.router_logits.cols;
  for (int64_t t = 0; t < args.x.rows; ++t) {
    const float* logits = args.router_logits.row(t);
    std::vector<int32_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](const int32_t a, const int32_t b) { return logits[a] > logits[b]; });
    const double largest = logits[order[0]];
    double total = 0.0;
    for (int64_t e = 0; e < count; ++e) total += std::exp(logits[e] - largest);
    std::vector<int32_t> chosen(order.begin(), order.begin() + args.top_k);
    std::sort(chosen.begin(), chosen.end());
    double chosen_total = 0.0;
    for (const int32_t e : chosen) chosen_total += std::exp(logits[e] - largest) / total;
    std::vector<double> sum(args.out.cols, 0.0);
    for (const int32_t e : chosen) {
      double weight = std::exp(logits[e] - largest) / total;
      if (args.normalize_top_k) weight /= chosen_total;
      AddExpert(args, e, RowOf(args.x, t), weight, sum);
    }
    for (int64_t n = 0; n < args.out.cols; ++n) args.out.row(t)[n] = static_cast<float>(args.out.row(t)[n] + sum[n]);
  }
}

}  // namespace invar::kernels::reference
