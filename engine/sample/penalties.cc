// The penalties of penalties.h.
#include "engine/sample/penalties.h"

#include <algorithm>

namespace invar::engine {

size_t TokenCounts::PlaceOf(const int32_t token) const {
  const size_t mask = places_.size() - 1;
  // Fibonacci hashing: neighbouring ids, which are frequent, spread.
  size_t place = (static_cast<uint64_t>(static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15U >> 32) & mask;
  while (places_[place] >= 0 && counts_[static_cast<size_t>(places_[place])].token != token) place = (place + 1) & mask;
  return place;
}

TokenCounts::Count& TokenCounts::Of(const int32_t token) {
  if (2 * (counts_.size() + 1) > places_.size()) Grow();
  int32_t& index = places_[PlaceOf(token)];
  if (index < 0) {
    index = static_cast<int32_t>(counts_.size());
    counts_.push_back({.token = token});
  }
  return counts_[static_cast<size_t>(index)];
}

void TokenCounts::Grow() {
  constexpr size_t kFirstPlaces = 64;
  places_.assign(std::max(kFirstPlaces, 2 * places_.size()), -1);
  for (size_t i = 0; i < counts_.size(); ++i) places_[PlaceOf(counts_[i].token)] = static_cast<int32_t>(i);
}

bool UsesPenalties(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1.0F || sampling.presence_penalty != 0.0F || sampling.frequency_penalty != 0.0F;
}

void ApplyPenalties(const SamplingParams& sampling, const TokenCounts& counts, const std::span<float> logits) {
  if (!UsesPenalties(sampling)) return;
  for (const TokenCounts::Count& count : counts.counts()) {
    float& logit = logits[count.token];
    logit = logit > 0.0F ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
    if (count.in_output == 0) continue;
    logit -= sampling.frequency_penalty * static_cast<float>(count.in_output);
    logit -= sampling.presence_penalty;
  }
}

}  // namespace invar::engine
