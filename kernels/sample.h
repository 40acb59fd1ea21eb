// Choosing a token from one row of logits: pure functions of (logits, settings, seed, output index, position).
// Order of filters: temperature, then top-k, then top-p, then min-p; then the largest logit / temperature + Gumbel
// noise among the kept wins (the same distribution as drawing from the softmax of the kept). Ties go to the smallest
// id. NaN and -infinity are never chosen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/noise.h"

namespace invar::kernels {

using invar::NoiseKey;

// Below this temperature the largest logit is chosen, as at 0. One step of a float near 16 is 2e-6, at this temperature
// already 0.2 in the exponent: what is left to draw from is rounding.
inline constexpr float kGreedyBelow = 1e-5F;

struct SampleSettings {
  float temperature = 1.0F;  // Below kGreedyBelow: the largest logit.
  int32_t top_k = 0;         // Keep the k largest; <= 0: all.
  float top_p = 1.0F;        // Keep the fewest, largest first, whose probabilities sum to at least this; >= 1: all.
  float min_p = 0.0F;        // Keep those at least this share as probable as the most probable; <= 0: all.
};

// Returns the id, or -1 where no logit can be chosen. Threads: any.
int32_t SampleRow(std::span<const float> logits, const SampleSettings& settings, const NoiseKey& key);

// Id of the largest logit, ties to the smallest id; -1 where there is none. Threads: any.
int32_t ArgMax(std::span<const float> logits);

// log(sum exp(logits)): a token's log-probability is its logit minus this. -infinity where no logit can be chosen.
float LogSumExp(std::span<const float> logits);

// The k most probable ids, best first, ties by id; fewer where fewer can be chosen.
void TopLogits(std::span<const float> logits, int32_t k, std::vector<int32_t>* ids);

// -log(-log(u)) of a word of noise, u = (word + 1/2) / 2^32. In [-3.2, 22.9], ascending in `word`.
double GumbelOf(uint32_t word);

}  // namespace invar::kernels
