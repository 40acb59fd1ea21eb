// Selection: which slots stay, given a score of each. Shared by the kinds that drop tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/compress/settings.h"
#include "cache/compress/settled_slots.h"
#include "cache/compressor.h"

namespace invar::cache {

// What stays whatever its score.
struct Untouched {
  int64_t sinks = 0;
  int64_t recent = 0;
};

// Keeps `target` slots of each head: the untouched, then those of largest score, on ties the earlier slot; a score that
// is no number counts least. scores: [kv_heads][count]. Where the untouched are more than `target`, only they stay.
void KeepBest(SettledSlots& slots, int64_t target, const Untouched& untouched, std::span<const float> scores);

// The place of each slot in its head, so that later ones count more: [kv_heads][count].
std::vector<float> ScoresOfOrder(const SettledSlots& slots);

// By ScoresOfOrder: sinks, then the latest tokens.
void KeepLatest(SettledSlots& slots, int64_t target, const Untouched& untouched);

// Scores from an observation by position, [kv_heads][tokens]; positions it does not reach have none.
std::vector<float> ScoresByPosition(const SettledSlots& slots, std::span<const float> by_position);

// A kind that keeps the slots of largest score.
class Selector : public Compressor {
 protected:
  // Sinks, recent and encoding of `traits` are read from the settings.
  Selector(CompressorTraits traits, const Settings& settings);
  // [kv_heads][count]
  virtual std::vector<float> Scores(const SettledSlots& slots, const CompressContext& context) const = 0;
  Untouched untouched() const { return {.sinks = traits().sinks, .recent = traits().recent}; }

 private:
  void Reduce(SettledSlots& slots, int64_t target, const CompressContext& context) const final;
};

}  // namespace invar::cache
