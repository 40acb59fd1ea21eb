// sampler.h along a draft.
#include "engine/sample/draft_sampler.h"

#include <algorithm>

#include "engine/sample/sampler.h"

namespace invar::engine {

std::optional<TokenId> DraftSampler::Next(const std::span<const float> logits) {
  const std::optional<TokenId> token = SampleToken({.rows = start_.rows,
                                                    .logits = logits,
                                                    .sampling = start_.sampling,
                                                    .stopping = start_.stopping,
                                                    .counts = counts_.has_value() ? *counts_ : start_.counts,
                                                    .output_tokens = output_tokens_,
                                                    .position = position_,
                                                    .usable_ids = start_.usable_ids},
                                                   start_.scratch);
  if (!token.has_value()) return std::nullopt;
  // Before min_tokens none is ever chosen.
  const std::vector<TokenId>& stops = start_.stopping.stop_token_ids;
  if (std::find(stops.begin(), stops.end(), *token) != stops.end()) return std::nullopt;
  Take(*token);
  return token;
}

void DraftSampler::Take(const TokenId token) {
  if (UsesPenalties(start_.sampling)) {
    if (!counts_.has_value()) counts_ = start_.counts;
    counts_->AddOutput(token);
  }
  ++output_tokens_;
  position_ = Position(position_.value() + 1);
}

}  // namespace invar::engine
