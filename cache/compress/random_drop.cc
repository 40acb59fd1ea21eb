// random_drop: which tokens stay is noise, keyed by position, head and layer; the floor that every other kind has to
// beat. What was dropped once would be dropped again, so views of a longer text are those of a shorter one, thinned
// out.
#include <array>

#include "base/noise.h"
#include "cache/compress/kinds.h"
#include "cache/compress/select.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {
    SinksRow(), RecentRow(), EncodingRow(),
    SettingRow{"seed", SettingType::kInteger, 1, 0, 4294967295.0, {}, "key of the noise"}};

class RandomDropCompressor final : public Selector {
 public:
  explicit RandomDropCompressor(const Settings& settings)
      : Selector({}, settings), seed_(static_cast<uint32_t>(settings.Integer("seed"))) {}

 private:
  std::vector<float> Scores(const SettledSlots& slots, const CompressContext& context) const override {
    std::vector<float> scores;
    scores.reserve(slots.heads() * slots.count());
    for (int64_t h = 0; h < slots.heads(); ++h) {
      for (const SlotMark& mark : slots.marks(h)) {
        const PhiloxWords words = Philox4x32({mark.position, static_cast<uint32_t>(h), 0, 0},
                                             {seed_, static_cast<uint32_t>(context.layer.value())});
        scores.push_back(static_cast<float>(words[0] >> 8));  // 24 bits: exact.
      }
    }
    return scores;
  }

  const uint32_t seed_;
};

}  // namespace

CompressorKind RandomDrop() { return {kSettings, MakeKind<RandomDropCompressor>}; }

}  // namespace invar::cache
