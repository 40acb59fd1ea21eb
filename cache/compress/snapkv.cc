// snapkv: what the last queries of the prompt look at, smoothed over neighbours so that spans stay together (SnapKV,
// arXiv 2404.14469).
#include <array>

#include "cache/compress/kinds.h"
#include "cache/compress/observed_attention.h"
#include "cache/compress/select.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {
    SinksRow(), RecentRow(), EncodingRow(),
    SettingRow{"window", SettingType::kInteger, 64, 1, 1024, {}, "queries observed, of the last tokens"},
    SettingRow{"pool",
               SettingType::kInteger,
               5,
               1,
               255,
               {},
               "neighbouring slots that a score is the mean of; an even number counts as the next odd one"}};

class SnapKvCompressor final : public Selector {
 public:
  explicit SnapKvCompressor(const Settings& settings)
      : Selector({.query_agnostic = false, .observation_window = static_cast<int32_t>(settings.Integer("window"))},
                 settings),
        reach_(settings.Integer("pool") / 2) {}

 private:
  std::vector<float> Scores(const SettledSlots& slots, const CompressContext& context) const override {
    const int64_t count = slots.count();
    std::vector<float> scores(slots.heads() * count);
    ForEachHead(context.workers, slots.heads(), [&](const int64_t h) {
      const std::vector<double> weights = ObservedAttention(slots, context.observation, h, traits().observation_window);
      for (int64_t i = 0; i < count; ++i) {
        double sum = 0.0;
        for (int64_t j = std::max<int64_t>(0, i - reach_); j <= std::min(count - 1, i + reach_); ++j) sum += weights[j];
        scores[h * count + i] = static_cast<float>(sum);
      }
    });
    return scores;
  }

  const int64_t reach_;
};

}  // namespace

CompressorKind SnapKv() { return {kSettings, MakeKind<SnapKvCompressor>}; }

}  // namespace invar::cache
