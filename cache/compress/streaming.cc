// streaming: attention sinks and the latest tokens (StreamingLLM, arXiv 2309.17453). Blind to what lies between.
#include <array>

#include "cache/compress/kinds.h"
#include "cache/compress/select.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {SinksRow(), RecentRow(), EncodingRow()};

class StreamingCompressor final : public Selector {
 public:
  explicit StreamingCompressor(const Settings& settings) : Selector({}, settings) {}

 private:
  std::vector<float> Scores(const SettledSlots& slots, const CompressContext& /*context*/) const override {
    return ScoresOfOrder(slots);
  }
};

}  // namespace

CompressorKind Streaming() { return {kSettings, MakeKind<StreamingCompressor>}; }

}  // namespace invar::cache
