// Attention in double over the full rows and over a compressed view: what errors of views are measured with.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "cache/compressed_layer.h"

namespace invar::cache {

// Borrows its rows.
struct WeightedRows {
  std::vector<const float*> keys;
  std::vector<const float*> values;
  std::vector<double> log_weights;
};

// softmax(q.k / sqrt(dim) + log weight) v
inline std::vector<double> Attend(const WeightedRows& rows, const std::vector<float>& q) {
  const auto dim = static_cast<int64_t>(q.size());
  std::vector<double> logits(rows.keys.size());
  double largest = -INFINITY;
  for (size_t j = 0; j < rows.keys.size(); ++j) {
    double sum = 0.0;
    for (int64_t i = 0; i < dim; ++i) sum += static_cast<double>(q[i]) * rows.keys[j][i];
    logits[j] = sum / std::sqrt(static_cast<double>(dim)) + rows.log_weights[j];
    largest = std::max(largest, logits[j]);
  }
  double total = 0.0;
  std::vector<double> out(dim, 0.0);
  for (size_t j = 0; j < rows.keys.size(); ++j) {
    const double weight = std::exp(logits[j] - largest);
    total += weight;
    for (int64_t i = 0; i < dim; ++i) out[i] += weight * rows.values[j][i];
  }
  for (double& x : out) x /= total;
  return out;
}

inline WeightedRows FullRows(const kernels::ConstKvRows& rows, const int64_t h) {
  WeightedRows out;
  for (int64_t t = 0; t < rows.slots; ++t) {
    out.keys.push_back(rows.key(h, t));
    out.values.push_back(rows.value(h, t));
    out.log_weights.push_back(0.0);
  }
  return out;
}

// A view with its body decoded.
class ViewRows {
 public:
  explicit ViewRows(const CompressedLayer& view) : view_(view) {
    const int64_t floats = view.body_slots() * view.shape().kv_heads * view.shape().head_dim;
    keys_.resize(floats);
    values_.resize(floats);
    const kernels::KvRows body = Body();
    for (int64_t p = 0; p < view.body_pages(); ++p) {
      kernels::DecodePage(view.encoding(), view.shape(), view.page(p), body.Slots(p * 64, 64));
    }
  }

  int64_t slots() const { return view_.slots(); }
  const float* key(const int64_t h, const int64_t s) const {
    return s < view_.body_slots() ? Body().key(h, s) : view_.tail().key(h, s - view_.body_slots());
  }
  const float* value(const int64_t h, const int64_t s) const {
    return s < view_.body_slots() ? Body().value(h, s) : view_.tail().value(h, s - view_.body_slots());
  }
  SlotMark mark(const int64_t h, const int64_t s) const {
    if (s < view_.body_slots()) return view_.page_marks(s / 64)[h * 64 + s % 64];
    return view_.tail_marks()[(s - view_.body_slots()) * view_.shape().kv_heads + h];
  }
  // `log_degrees`: whether they are added, as they must be.
  WeightedRows Head(const int64_t h, const bool log_degrees = true) const {
    WeightedRows out;
    for (int64_t s = 0; s < slots(); ++s) {
      out.keys.push_back(key(h, s));
      out.values.push_back(value(h, s));
      const uint32_t degree = mark(h, s).degree;
      out.log_weights.push_back(log_degrees && degree > 1 ? std::log(static_cast<double>(degree)) : 0.0);
    }
    return out;
  }

 private:
  kernels::KvRows Body() const {
    const int64_t dim = view_.shape().head_dim;
    return {const_cast<float*>(keys_.data()), const_cast<float*>(values_.data()), view_.body_slots(),
            view_.body_slots() * dim, dim};
  }
  const CompressedLayer& view_;
  std::vector<float> keys_;
  std::vector<float> values_;
};

// |is - was| / |was| over all queries together.
inline double RelativeError(const WeightedRows& was, const WeightedRows& is,
                            const std::vector<std::vector<float>>& queries) {
  double difference = 0.0;
  double length = 0.0;
  for (const std::vector<float>& q : queries) {
    const std::vector<double> x = Attend(was, q);
    const std::vector<double> y = Attend(is, q);
    for (size_t i = 0; i < x.size(); ++i) {
      difference += (x[i] - y[i]) * (x[i] - y[i]);
      length += x[i] * x[i];
    }
  }
  return std::sqrt(difference / length);
}

}  // namespace invar::cache
