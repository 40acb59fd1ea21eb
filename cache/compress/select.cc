// The order is total, so the choice does not depend on how it is found.
#include "cache/compress/select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cache/compress/kinds.h"

namespace invar::cache {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();

float Ordered(const float score) { return std::isnan(score) ? kLeast : score; }

bool IsUntouched(const SlotMark& mark, const Untouched& untouched, const int64_t tokens) {
  return mark.position < untouched.sinks || mark.position >= tokens - untouched.recent;
}

}  // namespace

void KeepBest(SettledSlots& slots, const int64_t target, const Untouched& untouched,
              const std::span<const float> scores) {
  const int64_t count = slots.count();
  std::vector<uint8_t> keep(slots.heads() * count, 0);
  std::vector<int64_t> others;
  for (int64_t h = 0; h < slots.heads(); ++h) {
    others.clear();
    int64_t kept = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (IsUntouched(slots.marks(h)[i], untouched, slots.tokens())) {
        keep[h * count + i] = 1;
        ++kept;
      } else {
        others.push_back(i);
      }
    }
    const float* score = scores.data() + h * count;
    const auto better = [&](const int64_t a, const int64_t b) {
      const float x = Ordered(score[a]);
      const float y = Ordered(score[b]);
      return x != y ? x > y : a < b;
    };
    const int64_t more = std::clamp<int64_t>(target - kept, 0, static_cast<int64_t>(others.size()));
    std::nth_element(others.begin(), others.begin() + more, others.end(), better);
    for (int64_t i = 0; i < more; ++i) keep[h * count + others[i]] = 1;
  }
  slots.Keep(keep);
}

std::vector<float> ScoresOfOrder(const SettledSlots& slots) {
  std::vector<float> scores(slots.heads() * slots.count());
  for (int64_t i = 0; i < static_cast<int64_t>(scores.size()); ++i) scores[i] = static_cast<float>(i % slots.count());
  return scores;
}

void KeepLatest(SettledSlots& slots, const int64_t target, const Untouched& untouched) {
  KeepBest(slots, target, untouched, ScoresOfOrder(slots));
}

std::vector<float> ScoresByPosition(const SettledSlots& slots, const std::span<const float> by_position) {
  const int64_t reach = static_cast<int64_t>(by_position.size()) / slots.heads();
  std::vector<float> scores(slots.heads() * slots.count(), kLeast);
  for (int64_t h = 0; h < slots.heads(); ++h) {
    for (int64_t i = 0; i < slots.count(); ++i) {
      const int64_t position = slots.marks(h)[i].position;
      if (position < reach) scores[h * slots.count() + i] = by_position[h * reach + position];
    }
  }
  return scores;
}

Selector::Selector(CompressorTraits traits, const Settings& settings)
    : Compressor(WithKept(traits, settings), settings.Canonical()) {}

void Selector::Reduce(SettledSlots& slots, const int64_t target, const CompressContext& context) const {
  KeepBest(slots, target, untouched(), Scores(slots, context));
}

}  // namespace invar::cache
