// Rows are kept as floats, whatever the model computes in.
#include "engine/compressed/query_log.h"

#include <algorithm>

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

void QueryLog::Queries(const int32_t layer, const kernels::Activations& queries) {
  Check(queries.cols == columns(), "a row has the queries of all heads", queries.cols, columns());
  std::vector<float>& rows = layers_[layer];
  for (int64_t r = 0; r < queries.rows; ++r) {
    if (queries.dtype == kernels::DType::kF32) {
      const auto* row = reinterpret_cast<const float*>(queries.row_bytes(r));
      rows.insert(rows.end(), row, row + queries.cols);
    } else {
      Check(queries.dtype == kernels::DType::kBf16, "queries are f32 or bf16");
      const auto* row = reinterpret_cast<const uint16_t*>(queries.row_bytes(r));
      for (int64_t c = 0; c < queries.cols; ++c) rows.push_back(kernels::FloatFromBf16(row[c]));
    }
  }
}

void QueryLog::Restart(const int64_t first) {
  first_ = first;
  for (std::vector<float>& rows : layers_) rows.clear();
}

void QueryLog::Trim(const int64_t first) {
  const int64_t rows = layers_.empty() ? 0 : std::ssize(layers_.front()) / columns();
  if (first - first_ <= rows / 2) return;  // What is moved up is less than what goes.
  for (std::vector<float>& rows : layers_) rows.erase(rows.begin(), rows.begin() + (first - first_) * columns());
  first_ = first;
}

Shown QueryLog::Show(const cache::CompressorTraits& traits, const int32_t layer, const int64_t end) const {
  Shown shown;
  if (QueriesShown(traits) == 0) return shown;
  const std::vector<float>& rows = layers_[layer];
  Check(first_ <= end && (end - first_) * columns() <= std::ssize(rows), "the log reaches so far", first_, end);
  const int64_t count = std::min<int64_t>(QueriesShown(traits), end - first_);
  shown.observation.query_heads = shape_.heads;
  shown.observation.scale = shape_.scale;
  for (int32_t head = 0; head < shape_.heads; ++head) {
    for (int64_t token = end - count; token < end; ++token) {
      const auto row = rows.begin() + (token - first_) * columns() + int64_t{head} * shape_.head_dim;
      shown.queries.insert(shown.queries.end(), row, row + shape_.head_dim);
    }
  }
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
