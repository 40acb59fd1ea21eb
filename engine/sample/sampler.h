// From a logits row to the next token: a pure function of the row, the request's parameters, its own tokens so far and
// the position. Nothing else enters, so a seeded request gives the same tokens alone, in a crowd and after a
// preemption.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"
#include "engine/sample/penalties.h"
#include "kernels/sample.h"

namespace invar::engine {

struct SampleInput {
  const kernels::RowSampler& rows;
  std::span<const float> logits;  // [vocabulary_size], raw.
  const SamplingParams& sampling;
  const StoppingParams& stopping;
  const TokenCounts& counts;  // Filled only where UsesPenalties.
  int32_t output_tokens = 0;  // Sampled so far.
  Position position;          // Of the token to sample.
  int32_t usable_ids = 0;     // Ids at or above it are padding rows of the embedding.
};

// Order: penalties, logit bias, then the masks (padding rows, allowed ids, stop ids before min_tokens), then
// temperature, top-k, top-p, min-p and noise. `scratch` is working memory. No token: a logit of a usable id is not
// finite.
std::optional<TokenId> SampleToken(const SampleInput& input, std::vector<float>& scratch);

}  // namespace invar::engine
