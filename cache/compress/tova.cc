// tova: what the last query looks at, averaged over all heads, so that every head keeps the same tokens (TOVA, arXiv
// 2401.06104).
#include <algorithm>
#include <array>

#include "cache/compress/kinds.h"
#include "cache/compress/observed_attention.h"
#include "cache/compress/select.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {SinksRow(0), RecentRow(1), EncodingRow()};

class TovaCompressor final : public Selector {
 public:
  explicit TovaCompressor(const Settings& settings)
      : Selector({.query_agnostic = false, .observation_window = 1}, settings) {}

 private:
  std::vector<float> Scores(const SettledSlots& slots, const CompressContext& context) const override {
    std::vector<double> sums(slots.count(), 0.0);
    for (int64_t h = 0; h < slots.heads(); ++h) {
      const std::vector<double> weights = ObservedAttention(slots, context.observation, h, 1);
      for (int64_t i = 0; i < slots.count(); ++i) sums[i] += weights[i];
    }
    std::vector<float> scores;
    scores.reserve(slots.heads() * slots.count());
    for (int64_t h = 0; h < slots.heads(); ++h) {
      std::transform(sums.begin(), sums.end(), std::back_inserter(scores),
                     [](const double sum) { return static_cast<float>(sum); });
    }
    return scores;
  }
};

}  // namespace

CompressorKind Tova() { return {kSettings, MakeKind<TovaCompressor>}; }

}  // namespace invar::cache
