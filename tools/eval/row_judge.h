// What a row of logits says: the token greedy decoding takes, and how likely a given one was.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/sample.h"

namespace invar::eval {

class RowJudge {
 public:
  // `vocabulary`: tokens that there are; rows may be longer. `stops`: tokens that end an answer.
  RowJudge(const kernels::RowSampler& sampler, const int32_t vocabulary, std::vector<TokenId> stops)
      : sampler_(sampler), vocabulary_(vocabulary), stops_(std::move(stops)) {}

  TokenId Best(const std::span<const float> logits) const { return TokenId(sampler_.ArgMax(Real(logits))); }
  // Negative log-likelihood, in nats.
  double Nll(const std::span<const float> logits, const TokenId token) const {
    return static_cast<double>(sampler_.LogSumExp(Real(logits))) - static_cast<double>(logits[token.value()]);
  }
  bool IsStop(const TokenId token) const { return std::ranges::find(stops_, token) != stops_.end(); }

 private:
  std::span<const float> Real(const std::span<const float> logits) const {
    return logits.first(std::min<size_t>(logits.size(), vocabulary_));
  }

  const kernels::RowSampler sampler_;
  const int32_t vocabulary_;
  const std::vector<TokenId> stops_;
};

}  // namespace invar::eval
