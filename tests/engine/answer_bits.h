// All bits of an answer as numbers: what the law says must be equal.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "tests/engine/collector.h"

namespace invar::engine {

// Token, raw logit and log-probabilities of every output token, then of every scored prompt token, in order.
inline std::vector<uint32_t> BitsOf(const Collector& events) {
  std::vector<uint32_t> bits;
  const auto add = [&](const TokenLogprob& logprob) {
    bits.push_back(static_cast<uint32_t>(logprob.token.value()));
    bits.push_back(std::bit_cast<uint32_t>(logprob.logit));
    bits.push_back(std::bit_cast<uint32_t>(logprob.logprob));
    for (const TokenAlternative& top : logprob.top) bits.push_back(std::bit_cast<uint32_t>(top.logprob));
  };
  for (const TokenLogprob& logprob : events.logprobs()) add(logprob);
  if (events.finished().has_value()) {
    for (const TokenLogprob& logprob : events.finished()->prompt_logprobs) add(logprob);
  }
  return bits;
}

}  // namespace invar::engine
