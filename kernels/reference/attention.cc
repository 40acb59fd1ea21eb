// out[t, h] = sum_j softmax_j(scale q[t, h] . k[j]) v[j] over visible positions j <= own (and within the window),
// times sigmoid(gate) where there is a gate. In a compressed view j is a slot, and ln(degree) is added to its score.
// Head h reads KV head h / (heads / kv_heads).
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/ops.h"

namespace invar::kernels::reference {
namespace {

// One span's keys and values as floats: of the body decoded once, of pages where they lie.
class Rows {
 public:
  Rows(const KvSpan& span, const AttentionShape& shape) : span_(span), shape_(shape) {
    const KvBody& body = span.kv.body;
    const int64_t floats = page_floats();
    body_.resize(static_cast<size_t>(body.pages * floats));
    const PageShape page{shape.kv_heads, shape.head_dim, DType::kF32, DenseOrder::kSlots};
    const int64_t bytes = EncodedPageBytes(body.encoding, page);
    for (int64_t p = 0; p < body.pages; ++p) {
      float* keys = body_.data() + p * floats;
      float* values = keys + kPageTokens * shape.head_dim;
      DecodePage(body.encoding, page, {body.bytes + p * bytes, static_cast<size_t>(bytes)},
                 {keys, values, kPageTokens, 2 * kPageTokens * shape.head_dim, shape.head_dim});
    }
  }

  const float* key(const int64_t slot, const int64_t head) const {
    return PageOf(slot) + (2 * head * kPageTokens + slot % kPageTokens) * shape_.head_dim;
  }
  const float* value(const int64_t slot, const int64_t head) const {
    return key(slot, head) + kPageTokens * shape_.head_dim;
  }
  double log_degree(const int64_t slot, const int64_t head) const {
    const KvBody& body = span_.kv.body;
    if (body.log_degrees == nullptr || slot / kPageTokens >= body.pages) return 0.0;
    return body.log_degrees[(slot / kPageTokens * shape_.kv_heads + head) * kPageTokens + slot % kPageTokens];
  }

 private:
  int64_t page_floats() const { return int64_t{2} * kPageTokens * shape_.kv_heads * shape_.head_dim; }
  const float* PageOf(const int64_t slot) const {
    const int64_t page = slot / kPageTokens;
    return page < span_.kv.body.pages ? body_.data() + page * page_floats()
                                      : reinterpret_cast<const float*>(span_.kv.page(page));
  }

  const KvSpan& span_;
  const AttentionShape& shape_;
  std::vector<float> body_;
};

void AttendOne(const AttentionArgs& args, const KvSpan& span, const Rows& rows, const int64_t r, const int64_t h) {
  const AttentionShape& shape = args.shape;
  const int64_t dim = shape.head_dim;
  const int64_t t = span.row_begin + r;
  const int64_t own = span.first_position + r;
  const int64_t first = shape.window > 0 ? std::max<int64_t>(0, own - shape.window + 1) : 0;
  const int64_t kv_head = h / (shape.heads / shape.kv_heads);
  const float* q = RowOf(args.q, t) + h * dim;
  std::vector<double> weights;
  double largest = -INFINITY;
  for (int64_t j = first; j <= own; ++j) {
    const float* k = rows.key(j, kv_head);
    double score = 0.0;
    for (int64_t i = 0; i < dim; ++i) score += static_cast<double>(q[i]) * k[i];
    weights.push_back(score * shape.scale + rows.log_degree(j, kv_head));
    largest = std::max(largest, weights.back());
  }
  double total = 0.0;
  for (double& weight : weights) total += weight = std::exp(weight - largest);
  std::vector<double> sum(dim, 0.0);
  for (int64_t j = first; j <= own; ++j) {
    const float* v = rows.value(j, kv_head);
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
    const Rows rows(span, args.shape);
    for (int64_t r = 0; r < span.rows; ++r) {
      for (int64_t h = 0; h < args.shape.heads; ++h) AttendOne(args, span, rows, r, h);
    }
  }
}

}  // namespace invar::kernels::reference
