// What a request must answer, from its tokens alone: no engine, no pages, no batch, no clock. Shares with the engine
// only the pure sampler; stop strings are found by the slowest search that is plainly right.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "models/model.h"
#include "models/text.h"

namespace invar::sim {

struct Expected {
  std::vector<TokenId> tokens;
  std::vector<engine::TokenLogprob> logprobs;         // One a token, whether asked for or not.
  std::vector<engine::TokenLogprob> prompt_logprobs;  // Empty unless asked for.
  std::string text;
  engine::FinishReason reason = engine::FinishReason::kLength;
  std::variant<std::monostate, std::string, TokenId> matched;
};

// `noise_shift`: 0; otherwise what an engine would answer that takes the noise of another position for every token but
// the first.
Expected ExpectedAnswer(const engine::Request& request, const models::FingerprintOptions& model,
                        const models::Tokenizer& tokenizer, int32_t noise_shift = 0);

}  // namespace invar::sim
