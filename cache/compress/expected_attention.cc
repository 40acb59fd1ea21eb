// expected_attention: the attention that queries still to come are expected to give, taken as normal with the mean m
// and covariance C of those seen, times the length of the value (Expected Attention, arXiv 2510.00636):
//   E exp(scale q.k) = exp(scale m.k + scale^2 k'Ck / 2), normalised over the slots of a head, mean over its query
//   heads.
#include <array>
#include <cmath>

#include "base/check.h"
#include "cache/compress/dot_columns.h"
#include "cache/compress/kinds.h"
#include "cache/compress/observed_attention.h"
#include "cache/compress/select.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {SinksRow(), RecentRow(), EncodingRow()};

// k'Ck of every slot; rows of C sixteen at a time.
std::vector<double> QuadraticForms(const SettledSlots& slots, const int64_t h, const float* covariance) {
  const int64_t dim = slots.dim();
  constexpr std::array<float, kDotColumns> kOnes = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  std::vector<float> columns(dim * kDotColumns);
  std::vector<float> products(slots.count() * kDotColumns);
  std::vector<double> forms(slots.count(), 0.0);
  for (int64_t first = 0; first < dim; first += kDotColumns) {
    const int64_t count = std::min(kDotColumns, dim - first);
    FillColumns(covariance + first * dim, dim, kOnes.data(), count, dim, columns.data());
    DotColumns(slots.key(h, 0), dim, slots.count(), columns.data(), dim, products.data());
    for (int64_t i = 0; i < slots.count(); ++i) {
      const float* k = slots.key(h, i) + first;
      const float* product = products.data() + i * kDotColumns;
      for (int64_t j = 0; j < count; ++j) forms[i] += static_cast<double>(product[j]) * k[j];
    }
  }
  return forms;
}

double Dot(const float* a, const float* b, const int64_t dim) {
  double sum = 0.0;
  for (int64_t i = 0; i < dim; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

class ExpectedAttentionCompressor final : public Selector {
 public:
  explicit ExpectedAttentionCompressor(const Settings& settings)
      : Selector({.query_agnostic = false, .query_moments = true}, settings) {}

 private:
  std::vector<float> Scores(const SettledSlots& slots, const CompressContext& context) const override {
    const Observation& seen = context.observation;
    const int64_t dim = slots.dim();
    Check(seen.query_heads > 0 && seen.query_heads % slots.heads() == 0, "query heads share KV heads evenly",
          seen.query_heads, slots.heads());
    Check(static_cast<int64_t>(seen.query_mean.size()) == seen.query_heads * dim &&
              static_cast<int64_t>(seen.query_covariance.size()) == seen.query_heads * dim * dim,
          "moments are [query_heads][dim] and [query_heads][dim][dim]", seen.query_mean.size());
    std::vector<float> scores(slots.heads() * slots.count());
    ForEachHead(context.workers, slots.heads(), [&](const int64_t h) {
      const std::vector<double> weights = ExpectedWeights(slots, seen, h);
      for (int64_t i = 0; i < slots.count(); ++i) {
        const double length = std::sqrt(Dot(slots.value(h, i), slots.value(h, i), dim));
        scores[h * slots.count() + i] = static_cast<float>(weights[i] * length);
      }
    });
    return scores;
  }

  static std::vector<double> ExpectedWeights(const SettledSlots& slots, const Observation& seen, const int64_t h) {
    const int64_t dim = slots.dim();
    const int64_t group = seen.query_heads / slots.heads();
    const double scale = ScaleOf(seen, dim);
    std::vector<double> sums(slots.count(), 0.0);
    for (int64_t q = h * group; q < (h + 1) * group; ++q) {
      std::vector<double> logits = QuadraticForms(slots, h, seen.query_covariance.data() + q * dim * dim);
      const float* mean = seen.query_mean.data() + q * dim;
      for (int64_t i = 0; i < slots.count(); ++i) {
        logits[i] = scale * Dot(mean, slots.key(h, i), dim) + 0.5 * scale * scale * logits[i];
      }
      SoftmaxInPlace(logits);
      for (int64_t i = 0; i < slots.count(); ++i) sums[i] += logits[i];
    }
    return sums;
  }
};

}  // namespace

CompressorKind ExpectedAttention() { return {kSettings, MakeKind<ExpectedAttentionCompressor>}; }

}  // namespace invar::cache
