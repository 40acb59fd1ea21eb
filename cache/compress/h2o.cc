// h2o: heavy hitters, the tokens that received most attention so far, beside the latest (H2O, arXiv 2306.14048). The
// attention is that of queries spread evenly over all tokens, on the slots that are left: so what is remembered and
// what upkeep costs do not grow with the text, and what was dropped takes no part, as in the paper. Early tokens are
// seen by more queries than late ones, as there too.
#include <algorithm>
#include <array>

#include "cache/compress/kinds.h"
#include "cache/compress/observed_attention.h"
#include "cache/compress/select.h"

namespace invar::cache {
namespace {

// 128: twice what snapkv looks at; their softmax is what a view costs.
constexpr std::array kSettings = {
    SinksRow(), RecentRow(), EncodingRow(),
    SettingRow{"queries", SettingType::kInteger, 128, 1, 1024, {}, "queries observed at most, spread over all tokens"}};

class H2oCompressor final : public Selector {
 public:
  explicit H2oCompressor(const Settings& settings)
      : Selector({.query_agnostic = false, .spread_queries = static_cast<int32_t>(settings.Integer("queries"))},
                 settings) {}

 private:
  std::vector<float> Scores(const SettledSlots& slots, const CompressContext& context) const override {
    std::vector<float> scores(slots.heads() * slots.count());
    ForEachHead(context.workers, slots.heads(), [&](const int64_t h) {
      const std::vector<double> mass = SpreadAttention(slots, context.observation, h);
      std::transform(mass.begin(), mass.end(), scores.begin() + h * slots.count(),
                     [](const double sum) { return static_cast<float>(sum); });
    });
    return scores;
  }
};

}  // namespace

CompressorKind H2o() { return {kSettings, MakeKind<H2oCompressor>}; }

}  // namespace invar::cache
