// out[t, h] = sum_j softmax_j(scale q[t, h] . k[j]) v[j] over visible positions j <= own (and within the window),
// times sigmoid(gate) where there is a gate. Head h reads KV head h / (heads / kv_heads).
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/ops.h"

namespace invar::kernels::reference {
namespace {

const float* KeyAt(const KvSpan& span, const AttentionShape& shape, const int64_t position, const int64_t head) {
  const float* page = reinterpret_cast<const float*>(span.kv.page(position / kPageTokens));
  return page + (position % kPageTokens * shape.kv_heads + head) * shape.head_dim;
}

void AttendOne(const AttentionArgs& args, const KvSpan& span, const int64_t r, const int64_t h) {
  const AttentionShape& shape = args.shape;
  const int64_t dim = shape.head_dim;
  const int64_t t = span.row_begin + r;
  const int64_t own = span.first_position + r;
  const int64_t first = shape.window > 0 ? std::max<int64_t>(0, own - shape.window + 1) : 0;
  const int64_t kv_head = h / (shape.heads / shape.kv_heads);
  const int64_t to_value = static_cast<int64_t>(kPageTokens) * shape.kv_heads * dim;
  const float* q = RowOf(args.q, t) + h * dim;
  std::vector<double> weights;
  double largest = -INFINITY;
  for (int64_t j = first; j <= own; ++j) {
    const float* k = KeyAt(span, shape, j, kv_head);
    double score = 0.0;
    for (int64_t i = 0; i < dim; ++i) score += static_cast<double>(q[i]) * k[i];
    weights.push_back(score * shape.scale);
    largest = std::max(largest, weights.back());
  }
  double total = 0.0;
  for (double& weight : weights) total += weight = std::exp(weight - largest);
  std::vector<double> sum(dim, 0.0);
  for (int64_t j = first; j <= own; ++j) {
    const float* v = KeyAt(span, shape, j, kv_head) + to_value;
    for (int64_t i = 0; i < dim; ++i) sum[i] += weights[j - first] * v[i];
  }
  for (int64_t i = 0; i < dim; ++i) {
    double y = sum[i] / total;
    if (args.gate.data != nullptr) y *= Sigmoid(args.gate.row(t)[h * args.gate_head_stride + i]);
    RowOf(args.out, t)[h * dim + i] = static_cast<float>(y);
  }
}

}  // namespace

void Attention(const AttentionArgs& args) {
  for (const KvSpan& span : args.spans) {
    for (int64_t r = 0; r < span.rows; ++r) {
      for (int64_t h = 0; h < args.shape.heads; ++h) AttendOne(args, span, r, h);
    }
  }
}

}  // namespace invar::kernels::reference
