// h2o: heavy hitters, the tokens that received most attention so far, beside the latest (H2O, arXiv 2306.14048).
#include <array>

#include "cache/compress/kinds.h"
#include "cache/compress/select.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {SinksRow(), RecentRow(), EncodingRow()};

class H2oCompressor final : public Selector {
 public:
  explicit H2oCompressor(const Settings& settings)
      : Selector({.query_agnostic = false, .attention_mass = true}, settings) {}

 private:
  std::vector<float> Scores(const SettledSlots& slots, const CompressContext& context) const override {
    return ScoresByPosition(slots, context.observation.mass);
  }
};

}  // namespace

CompressorKind H2o() { return {kSettings, MakeKind<H2oCompressor>}; }

}  // namespace invar::cache
