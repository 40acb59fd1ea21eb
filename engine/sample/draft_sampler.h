// DraftSampler: the tokens that the engine would choose for one sequence if logits were the model's: its parameters,
// the noise of each position, its penalties, biases and masks, token after token along a draft. So a guess made from
// the right logits is the right token at any temperature, and one made from logits that are nearly right is so more
// often than by any choice of other noise. (Gumbel coupling: arXiv 2408.07978.)
// What the sequence has is only read: a draft that is thrown away leaves nothing to roll back.
// Threads: one.
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

class DraftSampler {
 public:
  // Where the sequence stands. Requires: what it refers to outlives the sampler and stays as it is.
  struct Start {
    const kernels::RowSampler& rows;
    const SamplingParams& sampling;
    const StoppingParams& stopping;
    const TokenCounts& counts;  // Filled only where UsesPenalties.
    int32_t output_tokens = 0;  // Sampled so far.
    Position position;          // Of the first token to choose.
    int32_t usable_ids = 0;     // Ids at or above it are padding rows of the embedding.
    std::vector<float>& scratch;
  };
  explicit DraftSampler(const Start& start)
      : start_(start), output_tokens_(start.output_tokens), position_(start.position) {}

  // The token behind all that were chosen so far, from its row of logits [vocabulary_size]. Nullopt ends the draft: a
  // logit is not finite, or a stop token would be chosen, behind which nothing is needed.
  std::optional<TokenId> Next(std::span<const float> logits);
  // `token` was chosen earlier, by another sampler of the same draft.
  void Take(TokenId token);

 private:
  const Start start_;
  int32_t output_tokens_;
  Position position_;
  std::optional<TokenCounts> counts_;  // With the draft's tokens; a copy is made for the first of them.
};

}  // namespace invar::engine
