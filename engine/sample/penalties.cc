// The penalties of penalties.h.
#include "engine/sample/penalties.h"

namespace invar::engine {

bool UsesPenalties(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1.0F || sampling.presence_penalty != 0.0F || sampling.frequency_penalty != 0.0F;
}

void ApplyPenalties(const SamplingParams& sampling, const TokenCounts& counts, const std::span<float> logits) {
  if (!UsesPenalties(sampling)) return;
  for (const auto& [token, count] : counts.counts()) {
    float& logit = logits[token];
    logit = logit > 0.0F ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
    if (count.in_output == 0) continue;
    logit -= sampling.frequency_penalty * static_cast<float>(count.in_output);
    logit -= sampling.presence_penalty;
  }
}

}  // namespace invar::engine
