// Penalties: what a sequence's own tokens do to its next logits. They see the token list only, never the cache or the
// batch, so that a hit, a preemption or a neighbour cannot change them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"

namespace invar::engine {

// How often each token occurs, prompt and output apart. Flat, in the order of first occurrence: adding is a look-up,
// and the walk that every sampled token takes over all of them reads memory once, in one direction. Tokens are
// penalised each by itself, so the order of the walk decides nothing.
class TokenCounts {
 public:
  struct Count {
    int32_t token = 0;
    int32_t in_output = 0;
    bool in_prompt = false;
  };

  void AddPrompt(const TokenId token) { Of(token.value()).in_prompt = true; }
  void AddOutput(const TokenId token) { ++Of(token.value()).in_output; }
  std::span<const Count> counts() const { return counts_; }

 private:
  Count& Of(int32_t token);
  void Grow();
  // Where the token's index stands in places_, or the free place where it belongs.
  size_t PlaceOf(int32_t token) const;

  std::vector<Count> counts_;
  std::vector<int32_t> places_;  // Open addressing: index into counts_, or -1. A power of two, at most half full.
};

bool UsesPenalties(const SamplingParams& sampling);

// Repetition over prompt and output (positive logits divided, negative multiplied, once a token however often it
// occurs: as transformers does), then frequency times count and presence once over the output (as OpenAI's API defines
// them).
void ApplyPenalties(const SamplingParams& sampling, const TokenCounts& counts, std::span<float> logits);

}  // namespace invar::engine
