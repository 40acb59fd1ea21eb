// Penalties: what a sequence's own tokens do to its next logits. They see the token list only, never the cache or the
// batch, so that a hit, a preemption or a neighbour cannot change them.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "base/ids.h"
#include "engine/request.h"

namespace invar::engine {

// How often each token occurs, prompt and output apart. Ordered: the walk over it reaches the logits.
class TokenCounts {
 public:
  void AddPrompt(const TokenId token) { counts_[token.value()].in_prompt = true; }
  void AddOutput(const TokenId token) { ++counts_[token.value()].in_output; }

  struct Count {
    bool in_prompt = false;
    int32_t in_output = 0;
  };
  const std::map<int32_t, Count>& counts() const { return counts_; }

 private:
  std::map<int32_t, Count> counts_;
};

bool UsesPenalties(const SamplingParams& sampling);

// Repetition over prompt and output (positive logits divided, negative multiplied, once a token however often it
// occurs: as transformers does), then frequency times count and presence once over the output (as OpenAI's API defines
// them).
void ApplyPenalties(const SamplingParams& sampling, const TokenCounts& counts, std::span<float> logits);

}  // namespace invar::engine
