// kvzip: the tokens that a model looks at while it repeats the context (KVzip, arXiv 2505.23416). The second pass costs
// as much as a prefill or more, but depends on no question, so its view is made once for a hot prefix and shared.
#include <array>

#include "cache/compress/kinds.h"
#include "cache/compress/select.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {SinksRow(), RecentRow(), EncodingRow()};

class KvZipCompressor final : public Selector {
 public:
  explicit KvZipCompressor(const Settings& settings) : Selector({.second_pass = true}, settings) {}

 private:
  std::vector<float> Scores(const SettledSlots& slots, const CompressContext& context) const override {
    return ScoresByPosition(slots, context.observation.second_pass);
  }
};

}  // namespace

CompressorKind KvZip() { return {kSettings, MakeKind<KvZipCompressor>}; }

}  // namespace invar::cache
