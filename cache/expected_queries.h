// Moments of the queries that are still to come, from queries seen: what expected_attention is shown.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace invar::cache {

struct QueriesSeen {
  std::span<const float> queries{};  // After rope: [query_heads][window][dim], of consecutive tokens.
  int32_t query_heads = 0;
  int32_t window = 0;
  int32_t dim = 0;
  int64_t first_position = 0;                     // Of the first of the window.
  std::span<const double> inverse_frequencies{};  // Rope turns dims (i, i + size) by position * [i].
};

struct QueryMoments {
  std::vector<float> mean;        // [query_heads][dim]
  std::vector<float> covariance;  // [query_heads][dim][dim]
};

// Turns the queries back to position 0, takes mean and covariance, and turns these by the mean rotation of the `future`
// positions after the window: m -> R m, C -> R C R'. Sums in double, queries ascending.
// Requires: window >= 1, future >= 1, 2 * inverse_frequencies.size() <= dim. Threads: any.
// Source: Expected Attention (arXiv 2510.00636), future = 512.
QueryMoments ExpectedQueries(const QueriesSeen& seen, int64_t future);

}  // namespace invar::cache
