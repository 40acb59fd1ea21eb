// centroid: similar keys of a neighbourhood become their mean, which stands for all of them with log(degree) added to
// its logit (CentroidKV, arXiv 2506.11418). Rounds of chunked matching (chunked_matching.h) take the most similar pairs
// until the budget holds; a schedule says how many (merge_schedule.h).
//
// Rounds merge multiples of 64 pairs and the first takes as many of the latest tokens out of reach as it needs to begin
// with whole pages: so every round ends with whole pages, and no slot of several tokens is ever in the tail.
// Beyond the paper: keys are alike by distance, not by cosine; a falling floor of similarity instead of a fixed share;
// slots that are like no other are never merged; several rounds a pass; chunks shifted by half on every other round;
// what is kept is encoded, so that fewer have to merge. The paper's is
// `schedule=paper,outliers=0,likeness=cosine,chunk=64,encoding=dense`.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "cache/compress/chunked_matching.h"
#include "cache/compress/kinds.h"
#include "cache/compress/merge_reach.h"
#include "cache/compress/merge_schedule.h"

namespace invar::cache {
namespace {

constexpr int64_t kPage = kernels::kEncodedPageSlots;
// How much farther than the median (in 1 - similarity) an outlier is. Of keys that walk (AR(1), 0.97 a token) next to
// none are twice as far, while keys like no other are ten times as far and more.
constexpr float kOutlierRatio = 3.0F;
constexpr std::array<std::string_view, 2> kSchedules = {"floor", "paper"};
constexpr std::array<std::string_view, 2> kLikenesses = {"distance", "cosine"};
constexpr std::array<std::string_view, 2> kSplits = {"alternate", "halves"};

constexpr std::array kSettings = {
    SinksRow(),
    RecentRow(),
    EncodingRow(kAutoEncoding),
    SettingRow{"chunk", SettingType::kInteger, 64, 2, 4096, {}, "slots that are matched with each other"},
    SettingRow{"rounds", SettingType::kInteger, 8, 1, 64, {}, "most rounds of matching a pass"},
    SettingRow{"share", SettingType::kReal, 0.5, 0, 0.5, {}, "most slots in reach that a round merges, as a share"},
    SettingRow{"schedule", SettingType::kChoice, 0, 0, 0, kSchedules,
               "pairs above a falling floor, or the paper's share"},
    SettingRow{"share_step", SettingType::kReal, 0, 0, 0.5, {}, "schedule=paper: how much the share falls a round"},
    SettingRow{"floor", SettingType::kReal, 0.8, -1, 1, {}, "schedule=floor: similarity that it begins with"},
    SettingRow{
        "floor_min", SettingType::kReal, 0.2, -1, 1, {}, "schedule=floor: similarity below which nothing merges"},
    SettingRow{
        "outliers", SettingType::kReal, 0.05, 0, 1, {}, "share of tokens, least similar first, that never merge"},
    SettingRow{"split", SettingType::kChoice, 0, 0, 0, kSplits, "how a chunk is cut in two"},
    SettingRow{"likeness", SettingType::kChoice, 0, 0, 0, kLikenesses, "of keys: by their distance, or their cosine"},
};

// Of each head; empty: not known.
using HeadPairs = std::vector<std::optional<std::vector<SlotPair>>>;

class CentroidCompressor final : public Compressor {
 public:
  explicit CentroidCompressor(const Settings& settings)
      : Compressor(WithKept({.family = CompressorFamily::kMerge}, settings), settings.Canonical()),
        chunk_(settings.Integer("chunk")),
        rounds_(settings.Integer("rounds")),
        outliers_(settings.Real("outliers")),
        split_(static_cast<ChunkSplit>(settings.Choice("split"))),
        likeness_(static_cast<KeyLikeness>(settings.Choice("likeness"))),
        schedule_{.share_max = settings.Real("share"),
                  .is_paper = settings.Choice("schedule") == 1,
                  .share_step = settings.Real("share_step"),
                  .floor = settings.Real("floor"),
                  .floor_min = settings.Real("floor_min")} {}

 private:
  // The paper's share is of all slots.
  bool ReducesNewestFirst() const override { return !schedule_.is_paper; }

  void Reduce(SettledSlots& slots, const int64_t target, const CompressContext& context) const override {
    if (ReachOf(slots, traits()).count() <= 0) return;
    const auto reach = [&](const int64_t phase) {
      const MergeReach all = ReachOf(slots, traits());
      return MatchRange{all.begin, all.end, chunk_, phase, split_, likeness_};
    };
    HeadPairs pairs(slots.heads());
    JudgeOutliers(slots, reach(0), target, pairs, context.workers);
    MergeSchedule schedule(schedule_);
    const auto above = [&] { return slots.before() + slots.count() - target; };
    // Once neither phase finds a page of pairs, none will.
    int64_t fruitless = 0;
    for (int64_t round = 0; round < rounds_ && above() > 0 && fruitless < 2; ++round) {
      // Whole pages go: what is above the budget, rounded up.
      const int64_t need = (above() + kPage - 1) / kPage * kPage;
      const int64_t merged =
          RunRound(slots, reach(round % 2 == 1 ? chunk_ / 2 : 0), {.need = need, .index = round, .rounds_max = rounds_},
                   schedule, pairs, context.workers);
      fruitless = merged == 0 ? fruitless + 1 : 0;
    }
  }

  // Slots that come into reach for the first time become outliers where they are far from being like any other of their
  // chunk: much farther than half of all, and among the setting's share that is farthest. All outliers together leave
  // three quarters of the budget to others. Leaves the pairs of `range` where it has looked at all of it.
  void JudgeOutliers(SettledSlots& slots, const MatchRange& range, const int64_t target, HeadPairs& pairs,
                     WorkerPool* workers) const {
    ForEachHead(workers, slots.heads(), [&](const int64_t h) {
      const std::span<SlotMark> marks = slots.marks(h);
      std::vector<int64_t> fresh;
      int64_t outliers = 0;
      for (int64_t i = range.begin; i < range.end; ++i) {
        if (marks[i].is_judged == 0) fresh.push_back(i);
        outliers += marks[i].is_outlier;
        marks[i].is_judged = 1;
      }
      const auto share = static_cast<int64_t>(outliers_ * static_cast<double>(fresh.size()));
      const int64_t more = std::clamp<int64_t>(target / 4 - outliers, 0, share);
      if (more == 0) return;
      // Only chunks with fresh slots are looked at.
      MatchRange part = range;
      part.begin += (fresh.front() - range.begin) / chunk_ * chunk_;
      ChunkMatches matches = MatchChunks(slots, h, part);
      const auto similarity = [&](const int64_t i) { return matches.best[i - part.begin]; };
      const auto less_similar = [&](const int64_t a, const int64_t b) {
        return similarity(a) != similarity(b) ? similarity(a) < similarity(b) : a < b;
      };
      const auto middle = fresh.begin() + std::ssize(fresh) / 2;
      std::nth_element(fresh.begin(), middle, fresh.end(), less_similar);
      const float far = kOutlierRatio * (1.0F - similarity(*middle));
      const auto last = fresh.begin() + more;
      if (last < fresh.end()) std::nth_element(fresh.begin(), last, fresh.end(), less_similar);
      for (auto slot = fresh.begin(); slot < last; ++slot) marks[*slot].is_outlier = 1.0F - similarity(*slot) > far;
      if (part.begin == range.begin) pairs[h] = std::move(matches.pairs);
    });
  }

  // Pairs merged in each head. `known`: those of `range` where they are known already; afterwards none.
  static int64_t RunRound(SettledSlots& slots, const MatchRange& range, MergeRound round, MergeSchedule& schedule,
                          HeadPairs& known, WorkerPool* workers) {
    HeadPairs pairs = std::move(known);
    known.assign(slots.heads(), std::nullopt);
    std::vector<std::vector<float>> similarities(slots.heads());
    ForEachHead(workers, slots.heads(), [&](const int64_t h) {
      if (!pairs[h].has_value()) pairs[h] = MatchChunks(slots, h, range).pairs;
      const std::span<const SlotMark> marks = slots.marks(h);
      std::erase_if(*pairs[h], [&](const SlotPair& pair) {
        return pair.similarity < -2.0F || marks[pair.a].is_outlier || marks[pair.b].is_outlier;
      });
      for (const SlotPair& pair : *pairs[h]) similarities[h].push_back(pair.similarity);
      std::sort(similarities[h].begin(), similarities[h].end(), std::greater<>());
    });
    round.similarities = similarities;
    round.slots = range.end - range.begin;
    const int64_t merged = schedule.Pairs(round);
    if (merged == 0) return 0;
    std::vector<uint8_t> keep(slots.heads() * slots.count(), 1);
    ForEachHead(workers, slots.heads(), [&](const int64_t h) {
      TakeMostSimilar(*pairs[h], merged);
      MergePairs(slots, h, *pairs[h], std::span(keep).subspan(h * slots.count(), slots.count()));
    });
    slots.Keep(keep);
    return merged;
  }

  // Leaves the `count` most similar, ascending in a; on ties the earlier.
  static void TakeMostSimilar(std::vector<SlotPair>& pairs, const int64_t count) {
    std::nth_element(pairs.begin(), pairs.begin() + count - 1, pairs.end(), [](const SlotPair& x, const SlotPair& y) {
      return x.similarity != y.similarity ? x.similarity > y.similarity : x.a < y.a;
    });
    pairs.resize(count);
    std::sort(pairs.begin(), pairs.end(), [](const SlotPair& x, const SlotPair& y) { return x.a < y.a; });
  }

  const int64_t chunk_;
  const int64_t rounds_;
  const double outliers_;
  const ChunkSplit split_;
  const KeyLikeness likeness_;
  const MergeScheduleOptions schedule_;
};

}  // namespace

CompressorKind Centroid() { return {kSettings, MakeKind<CentroidCompressor>}; }

}  // namespace invar::cache
