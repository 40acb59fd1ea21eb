// Rope is a turn of pairs of dims, so turning back is exact but for rounding.
#include "cache/expected_queries.h"

#include <cmath>

#include "base/check.h"

namespace invar::cache {
namespace {

// A turn (or a mean of turns) of every pair.
struct Turn {
  std::vector<double> cos;
  std::vector<double> sin;
};

Turn TurnOf(const std::span<const double> frequencies, const double position) {
  Turn turn;
  for (const double frequency : frequencies) {
    turn.cos.push_back(std::cos(position * frequency));
    turn.sin.push_back(std::sin(position * frequency));
  }
  return turn;
}

Turn MeanTurn(const std::span<const double> frequencies, const int64_t first, const int64_t count) {
  Turn mean{std::vector<double>(frequencies.size(), 0.0), std::vector<double>(frequencies.size(), 0.0)};
  for (int64_t p = first; p < first + count; ++p) {
    const Turn turn = TurnOf(frequencies, static_cast<double>(p));
    for (size_t i = 0; i < frequencies.size(); ++i) {
      mean.cos[i] += turn.cos[i] / static_cast<double>(count);
      mean.sin[i] += turn.sin[i] / static_cast<double>(count);
    }
  }
  return mean;
}

// x[i * stride], in place.
void Apply(const Turn& turn, double* x, const int64_t stride) {
  const auto half = static_cast<int64_t>(turn.cos.size());
  for (int64_t i = 0; i < half; ++i) {
    const double a = x[i * stride];
    const double b = x[(i + half) * stride];
    x[i * stride] = a * turn.cos[i] - b * turn.sin[i];
    x[(i + half) * stride] = b * turn.cos[i] + a * turn.sin[i];
  }
}

}  // namespace

QueryMoments ExpectedQueries(const QueriesSeen& seen, const int64_t future) {
  const int64_t dim = seen.dim;
  const int64_t window = seen.window;
  Check(window >= 1 && future >= 1, "queries were seen and are expected", window, future);
  Check(2 * static_cast<int64_t>(seen.inverse_frequencies.size()) <= dim, "rope turns dims of a head", dim);
  Check(static_cast<int64_t>(seen.queries.size()) == seen.query_heads * window * dim,
        "queries are [query_heads][window][dim]", seen.queries.size());
  const Turn ahead = MeanTurn(seen.inverse_frequencies, seen.first_position + window, future);
  QueryMoments out;
  for (int64_t q = 0; q < seen.query_heads; ++q) {
    std::vector<double> rows(seen.queries.begin() + q * window * dim, seen.queries.begin() + (q + 1) * window * dim);
    std::vector<double> mean(dim, 0.0);
    for (int64_t w = 0; w < window; ++w) {
      Apply(TurnOf(seen.inverse_frequencies, -static_cast<double>(seen.first_position + w)), &rows[w * dim], 1);
      for (int64_t i = 0; i < dim; ++i) mean[i] += rows[w * dim + i] / static_cast<double>(window);
    }
    std::vector<double> covariance(dim * dim, 0.0);
    for (int64_t w = 0; w < window; ++w) {
      const double* row = &rows[w * dim];
      for (int64_t i = 0; i < dim; ++i) {
        const double x = (row[i] - mean[i]) / static_cast<double>(window);
        for (int64_t j = 0; j < dim; ++j) covariance[i * dim + j] += x * (row[j] - mean[j]);
      }
    }
    Apply(ahead, mean.data(), 1);
    for (int64_t i = 0; i < dim; ++i) Apply(ahead, &covariance[i * dim], 1);
    for (int64_t j = 0; j < dim; ++j) Apply(ahead, &covariance[j], dim);
    out.mean.insert(out.mean.end(), mean.begin(), mean.end());
    out.covariance.insert(out.covariance.end(), covariance.begin(), covariance.end());
  }
  return out;
}

}  // namespace invar::cache
