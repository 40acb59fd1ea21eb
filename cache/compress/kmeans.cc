// kmeans: keys in reach are clustered by k-means, as many clusters as the budget leaves; a slot becomes the mean of its
// cluster's keys and of their values and stands for all its tokens. A baseline for centroid: every slot is compared
// with every centre, count x clusters x dim multiply-adds a pass, and the order of the text plays no part.
#include <array>
#include <limits>

#include "cache/compress/chunked_matching.h"
#include "cache/compress/dot_columns.h"
#include "cache/compress/kinds.h"
#include "cache/compress/merge_reach.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {
    SinksRow(), RecentRow(), EncodingRow(),
    SettingRow{"passes", SettingType::kInteger, 4, 1, 64, {}, "of assigning slots to centres and moving these"}};

// Clusters of the keys of one head. Slots are counted from the reach's begin.
class Clusters {
 public:
  Clusters(const SettledSlots& slots, const int64_t h, const MergeReach& reach, const int64_t count)
      : slots_(slots), h_(h), reach_(reach), centres_(count * slots.dim()), of_(reach.count()), score_(reach.count()) {
    // Centres begin as slots spread over the text, so that the first pass finds neighbours.
    for (int64_t c = 0; c < count; ++c) {
      const float* key = slots.key(h, reach.begin + (2 * c + 1) * reach.count() / (2 * count));
      std::copy_n(key, slots.dim(), centres_.data() + c * slots.dim());
    }
  }

  // Every slot goes to the nearest centre, on ties to the first.
  void Assign() {
    const int64_t dim = slots_.dim();
    constexpr std::array<float, kDotColumns> kOnes = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    std::vector<float> columns(dim * kDotColumns);
    std::vector<float> products(reach_.count() * kDotColumns);
    std::fill(score_.begin(), score_.end(), -std::numeric_limits<float>::infinity());
    std::fill(of_.begin(), of_.end(), 0);
    for (int64_t first = 0; first < count(); first += kDotColumns) {
      const int64_t some = std::min(kDotColumns, count() - first);
      FillColumns(centres_.data() + first * dim, dim, kOnes.data(), some, dim, columns.data());
      DotColumns(slots_.key(h_, reach_.begin), dim, reach_.count(), columns.data(), dim, products.data());
      for (int64_t j = 0; j < some; ++j) {
        const float half_square = 0.5F * Square(first + j);
        for (int64_t i = 0; i < reach_.count(); ++i) {
          // Half of |key|^2 - |key - centre|^2: larger is nearer. NaN is never nearer.
          const float score = products[i * kDotColumns + j] - half_square;
          if (score > score_[i]) {
            score_[i] = score;
            of_[i] = first + j;
          }
        }
      }
    }
  }

  // A centre without slots takes the one that fits its own the least, among centres that have several.
  void FillEmpty() {
    std::vector<int64_t> sizes(count(), 0);
    for (const int64_t c : of_) ++sizes[c];
    for (int64_t c = 0; c < count(); ++c) {
      if (sizes[c] > 0) continue;
      int64_t worst = -1;
      for (int64_t i = 0; i < reach_.count(); ++i) {
        if (sizes[of_[i]] > 1 && (worst < 0 || score_[i] < score_[worst])) worst = i;
      }
      --sizes[of_[worst]];
      of_[worst] = c;
      score_[worst] = std::numeric_limits<float>::infinity();
      sizes[c] = 1;
    }
  }

  // Centres become the means of all tokens that their slots stand for.
  void Move() {
    const int64_t dim = slots_.dim();
    std::fill(centres_.begin(), centres_.end(), 0.0F);
    std::vector<float> degrees(count(), 0.0F);
    for (int64_t i = 0; i < reach_.count(); ++i) {
      const auto degree = static_cast<float>(slots_.marks(h_)[reach_.begin + i].degree);
      const float* key = slots_.key(h_, reach_.begin + i);
      float* centre = centres_.data() + of_[i] * dim;
      for (int64_t d = 0; d < dim; ++d) centre[d] += degree * key[d];
      degrees[of_[i]] += degree;
    }
    for (int64_t c = 0; c < count(); ++c)
      for (int64_t d = 0; d < dim; ++d) centres_[c * dim + d] /= degrees[c];
  }

  // All slots of a cluster but its first, with that one: ascending.
  std::vector<SlotPair> Pairs() const {
    std::vector<int64_t> first(count(), -1);
    std::vector<SlotPair> pairs;
    for (int64_t i = 0; i < reach_.count(); ++i) {
      if (first[of_[i]] < 0) {
        first[of_[i]] = i;
      } else {
        pairs.push_back({.a = reach_.begin + i, .b = reach_.begin + first[of_[i]]});
      }
    }
    return pairs;
  }

 private:
  int64_t count() const { return static_cast<int64_t>(centres_.size()) / slots_.dim(); }
  float Square(const int64_t c) const {
    float sum = 0.0F;
    for (int64_t d = 0; d < slots_.dim(); ++d) sum += centres_[c * slots_.dim() + d] * centres_[c * slots_.dim() + d];
    return sum;
  }

  const SettledSlots& slots_;
  const int64_t h_;
  const MergeReach reach_;
  std::vector<float> centres_;  // [count][dim]
  std::vector<int64_t> of_;     // Cluster of each slot.
  std::vector<float> score_;    // How near each slot is to its centre.
};

class KMeansCompressor final : public Compressor {
 public:
  explicit KMeansCompressor(const Settings& settings)
      : Compressor(WithKept({.family = CompressorFamily::kMerge}, settings), settings.Canonical()),
        passes_(settings.Integer("passes")) {}

 private:
  void Reduce(SettledSlots& slots, const int64_t target, const CompressContext& context) const override {
    const MergeReach reach = ReachOf(slots, traits());
    const int64_t going = reach.Going(slots.before() + slots.count() - target, /*left=*/1);
    if (going == 0) return;
    std::vector<uint8_t> keep(slots.heads() * slots.count(), 1);
    ForEachHead(context.workers, slots.heads(), [&](const int64_t h) {
      Clusters clusters(slots, h, reach, reach.count() - going);
      for (int64_t pass = 0; pass < passes_; ++pass) {
        if (pass > 0) clusters.Move();
        clusters.Assign();
        clusters.FillEmpty();
      }
      MergePairs(slots, h, clusters.Pairs(), std::span(keep).subspan(h * slots.count(), slots.count()));
    });
    slots.Keep(keep);
  }

  const int64_t passes_;
};

}  // namespace

CompressorKind KMeans() { return {kSettings, MakeKind<KMeansCompressor>}; }

}  // namespace invar::cache
