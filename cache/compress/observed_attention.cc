// Sixteen queries at a time against every slot.
#include "cache/compress/observed_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "cache/compress/dot_columns.h"

namespace invar::cache {

float ScaleOf(const Observation& observation, const int64_t dim) {
  return observation.scale != 0.0F ? observation.scale : 1.0F / std::sqrt(static_cast<float>(dim));
}

void SoftmaxInPlace(std::vector<double>& x) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const double logit : x) largest = logit > largest ? logit : largest;
  if (!std::isfinite(largest)) return std::fill(x.begin(), x.end(), 0.0);
  double total = 0.0;
  for (double& logit : x) {
    logit = std::isnan(logit) ? 0.0 : std::exp(logit - largest);
    total += logit;
  }
  for (double& weight : x) weight /= total;
}

namespace {

// Queries of tokens `first_token`, first_token + stride and so on: [query_heads][count][dim].
struct SeenQueries {
  std::span<const float> rows;
  int64_t count;
  int64_t first_token;
  int64_t stride;
};

// Of queries [from, seen.count).
std::vector<double> AttentionFrom(const SettledSlots& slots, const Observation& observation, const SeenQueries& seen,
                                  const int64_t h, const int64_t from) {
  const int64_t dim = slots.dim();
  Check(observation.query_heads > 0 && observation.query_heads % slots.heads() == 0,
        "query heads share KV heads evenly", observation.query_heads, slots.heads());
  Check(std::ssize(seen.rows) == observation.query_heads * seen.count * dim, "queries are [query_heads][count][dim]",
        seen.rows.size());
  const int64_t group = observation.query_heads / slots.heads();
  std::array<float, kDotColumns> factors;
  factors.fill(ScaleOf(observation, dim));
  std::vector<float> columns(dim * kDotColumns);
  std::vector<float> logits(slots.count() * kDotColumns);
  std::vector<double> weights(slots.count());
  std::vector<double> sums(slots.count(), 0.0);
  for (int64_t q = h * group; q < (h + 1) * group; ++q) {
    const float* rows = seen.rows.data() + q * seen.count * dim;
    for (int64_t first = from; first < seen.count; first += kDotColumns) {
      const int64_t count = std::min(kDotColumns, seen.count - first);
      FillColumns(rows + first * dim, dim, factors.data(), count, dim, columns.data());
      DotColumns(slots.key(h, 0), dim, slots.count(), columns.data(), dim, logits.data());
      for (int64_t w = 0; w < count; ++w) {
        const int64_t own = seen.first_token + (first + w) * seen.stride;
        for (int64_t i = 0; i < slots.count(); ++i) {
          const bool sees = slots.marks(h)[i].position <= own;
          weights[i] = sees ? logits[i * kDotColumns + w] : -std::numeric_limits<double>::infinity();
        }
        SoftmaxInPlace(weights);
        for (int64_t i = 0; i < slots.count(); ++i) sums[i] += weights[i];
      }
    }
  }
  return sums;
}

}  // namespace

std::vector<double> ObservedAttention(const SettledSlots& slots, const Observation& observation, const int64_t h,
                                      const int64_t queries) {
  const int64_t window = observation.window;
  return AttentionFrom(
      slots, observation,
      {.rows = observation.queries, .count = window, .first_token = slots.tokens() - window, .stride = 1}, h,
      std::max<int64_t>(0, window - queries));
}

std::vector<double> SpreadAttention(const SettledSlots& slots, const Observation& observation, const int64_t h) {
  const int64_t stride = observation.spread_stride;
  return AttentionFrom(slots, observation,
                       {.rows = observation.spread_queries,
                        .count = (slots.tokens() + stride - 1) / stride,
                        .first_token = 0,
                        .stride = stride},
                       h, 0);
}

}  // namespace invar::cache
