// Rows are kept as floats, whatever the model computes in.
#include "engine/compressed/query_log.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/bf16.h"

namespace invar::engine {
namespace {

// Queries that moments are taken of: several times the dims of a head, so that a covariance is more than noise.
constexpr int32_t kMomentQueries = 512;
// Positions that queries are expected at (arXiv 2510.00636).
constexpr int64_t kFutureTokens = 512;

}  // namespace

int32_t QueriesShown(const cache::CompressorTraits& traits) {
  return traits.query_moments ? kMomentQueries : traits.observation_window;
}

bool IsShownQueries(const cache::CompressorTraits& traits) {
  return QueriesShown(traits) > 0 || traits.spread_queries > 0;
}

void AppendRow(const kernels::Activations& queries, const int64_t row, std::vector<float>& floats) {
  if (queries.dtype == kernels::DType::kF32) {
    const auto* values = reinterpret_cast<const float*>(queries.row_bytes(row));
    floats.insert(floats.end(), values, values + queries.cols);
    return;
  }
  Check(queries.dtype == kernels::DType::kBf16, "queries are f32 or bf16");
  const auto* values = reinterpret_cast<const uint16_t*>(queries.row_bytes(row));
  for (int64_t c = 0; c < queries.cols; ++c) floats.push_back(kernels::FloatFromBf16(values[c]));
}

void QueryLog::Queries(const int32_t layer, const kernels::Activations& queries) {
  Check(queries.cols == columns(), "a row has the queries of all heads", queries.cols, columns());
  Layer& log = layers_[layer];
  for (int64_t r = 0; r < queries.rows; ++r, ++log.next) {
    if ((log.next - first_) % log.stride != 0) continue;
    AppendRow(queries, r, log.rows);
    if (spread_ > 0 && std::ssize(log.rows) > spread_ * columns()) Thin(log);
  }
}

// Every other row stays.
void QueryLog::Thin(Layer& layer) const {
  const int64_t kept = (std::ssize(layer.rows) / columns() + 1) / 2;
  for (int64_t r = 1; r < kept; ++r) {
    std::copy_n(layer.rows.begin() + 2 * r * columns(), columns(), layer.rows.begin() + r * columns());
  }
  layer.rows.resize(static_cast<size_t>(kept * columns()));
  layer.stride *= 2;
}

void QueryLog::Restart(const int64_t first) {
  Check(spread_ == 0 || first == 0, "queries spread over all tokens begin with the first", first);
  first_ = first;
  for (Layer& layer : layers_) {
    layer.rows.clear();
    layer.next = first;
    layer.stride = 1;
  }
  TakeSecondPass(0, {});
}

void QueryLog::TakeSecondPass(const int64_t tokens, std::vector<std::vector<float>> largest) {
  repeated_ = tokens;
  second_pass_ = std::move(largest);
}

void QueryLog::Trim(const int64_t first) {
  Check(spread_ == 0, "rows that are spread go by themselves");
  const int64_t rows = layers_.empty() ? 0 : std::ssize(layers_.front().rows) / columns();
  if (first - first_ <= rows / 2) return;  // What is moved up is less than what goes.
  for (Layer& layer : layers_) {
    layer.rows.erase(layer.rows.begin(), layer.rows.begin() + (first - first_) * columns());
  }
  first_ = first;
}

std::vector<float> QueryLog::ByHead(const Layer& layer, const int64_t first, const int64_t count,
                                    const int64_t stride) const {
  Check(first_ <= first && (first - first_) % layer.stride == 0 && stride % layer.stride == 0,
        "rows that are asked for were kept", first_, first, layer.stride, stride);
  std::vector<float> queries;
  queries.reserve(static_cast<size_t>(count * columns()));
  for (int32_t head = 0; head < shape_.heads; ++head) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t kept = (first + i * stride - first_) / layer.stride;
      const auto row = layer.rows.begin() + kept * columns() + int64_t{head} * shape_.head_dim;
      queries.insert(queries.end(), row, row + shape_.head_dim);
    }
  }
  return queries;
}

Shown QueryLog::Show(const cache::CompressorTraits& traits, const int32_t layer, const int64_t end) const {
  Shown shown;
  if (traits.second_pass && !second_pass_.empty() && end == repeated_) {
    shown.observation.second_pass = second_pass_[layer];
  }
  if (!IsShownQueries(traits)) return shown;
  const Layer& log = layers_[layer];
  Check(first_ <= end && end <= log.next, "the log reaches so far", first_, end, log.next);
  shown.observation.query_heads = shape_.heads;
  shown.observation.scale = shape_.scale;
  if (traits.spread_queries > 0) {
    const int64_t stride = cache::SpreadStride(end, traits.spread_queries);
    shown.queries = ByHead(log, 0, (end + stride - 1) / stride, stride);
    shown.observation.spread_queries = shown.queries;
    shown.observation.spread_stride = stride;
    return shown;
  }
  const int64_t count = std::min<int64_t>(QueriesShown(traits), end - first_);
  shown.queries = ByHead(log, end - count, count, 1);
  if (!traits.query_moments) {
    shown.observation.queries = shown.queries;
    shown.observation.window = static_cast<int32_t>(count);
    return shown;
  }
  shown.moments = cache::ExpectedQueries({.queries = shown.queries,
                                          .query_heads = shape_.heads,
                                          .window = static_cast<int32_t>(count),
                                          .dim = shape_.head_dim,
                                          .first_position = end - count,
                                          .inverse_frequencies = inverse_frequencies_},
                                         kFutureTokens);
  shown.observation.query_mean = shown.moments.mean;
  shown.observation.query_covariance = shown.moments.covariance;
  return shown;
}

}  // namespace invar::engine
