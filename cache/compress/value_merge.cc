// value_merge: slots spread evenly over the text stay; the value of each of the others goes into that of the most
// similar one that stays, by cosine of keys, among those of its chunk. A baseline for centroid: keys stay exact and are
// not moved towards what they stand for. As in NVIDIA/kvpress (merging_press.py), but for the degrees: what stays also
// counts for the tokens it took in, without which their attention would be lost.
#include <array>
#include <cmath>
#include <vector>

#include "cache/compress/chunked_matching.h"
#include "cache/compress/kinds.h"
#include "cache/compress/merge_reach.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {
    SinksRow(), RecentRow(), EncodingRow(),
    SettingRow{"chunk", SettingType::kInteger, 64, 2, 4096, {}, "slots among which the most similar is looked for"}};

double Dot(const float* a, const float* b, const int64_t dim) {
  double sum = 0.0;
  for (int64_t i = 0; i < dim; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

class ValueMergeCompressor final : public Compressor {
 public:
  explicit ValueMergeCompressor(const Settings& settings)
      : Compressor(WithKept({.family = CompressorFamily::kMerge}, settings), settings.Canonical()),
        chunk_(settings.Integer("chunk")) {}

 private:
  void Reduce(SettledSlots& slots, const int64_t target, const CompressContext& context) const override {
    const MergeReach reach = ReachOf(slots, traits());
    // One stays in every chunk at least.
    const int64_t chunks = (reach.count() + chunk_ - 1) / chunk_;
    const int64_t going = reach.Going(slots.before() + slots.count() - target, chunks);
    if (going == 0) return;
    std::vector<uint8_t> keep(slots.heads() * slots.count(), 1);
    ForEachHead(context.workers, slots.heads(), [&](const int64_t h) {
      const std::vector<SlotPair> pairs = Pairs(slots, h, reach, reach.count() - going);
      std::vector<float> keys(slots.key(h, 0), slots.key(h, 0) + slots.count() * slots.dim());
      MergePairs(slots, h, pairs, std::span(keep).subspan(h * slots.count(), slots.count()));
      std::copy(keys.begin(), keys.end(), slots.key(h, 0));
    });
    slots.Keep(keep);
  }

  // Slots that go, ascending, each with the one of its chunk that stays and is most similar; the first on ties.
  std::vector<SlotPair> Pairs(const SettledSlots& slots, const int64_t h, const MergeReach& reach,
                              const int64_t staying) const {
    const auto stays = [&](const int64_t i) {
      const int64_t at = i - reach.begin;
      return (at + 1) * staying / reach.count() != at * staying / reach.count();
    };
    std::vector<double> lengths;
    for (int64_t i = reach.begin; i < reach.end; ++i)
      lengths.push_back(std::sqrt(Dot(slots.key(h, i), slots.key(h, i), slots.dim())));
    std::vector<SlotPair> pairs;
    for (int64_t begin = reach.begin; begin < reach.end; begin += chunk_) {
      // A short last chunk may have none that stays: it looks into the one before.
      const int64_t end = std::min(begin + chunk_, reach.end);
      const int64_t from = std::max(reach.begin, end - chunk_);
      for (int64_t a = begin; a < end; ++a) {
        if (stays(a)) continue;
        SlotPair pair{.a = a, .b = -1};
        for (int64_t b = from; b < end; ++b) {
          if (!stays(b)) continue;
          // The length of a's own key changes nothing about which is largest.
          const auto similarity =
              static_cast<float>(Dot(slots.key(h, a), slots.key(h, b), slots.dim()) / lengths[b - reach.begin]);
          if (pair.b < 0 || similarity > pair.similarity) pair = {a, b, similarity};
        }
        pairs.push_back(pair);
      }
    }
    return pairs;
  }

  const int64_t chunk_;
};

}  // namespace

CompressorKind ValueMerge() { return {kSettings, MakeKind<ValueMergeCompressor>}; }

}  // namespace invar::cache
