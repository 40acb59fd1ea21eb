// See drawn_prompt.h.
#include "tools/invar/drawn_prompt.h"

namespace invar::tools {

std::vector<int32_t> DrawTokens(std::mt19937_64& random, const int32_t count, const int32_t vocabulary_size) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary_size));
  return tokens;
}

v1::GenerateRequest GreedyRequest(const std::vector<int32_t>& prompt, const int32_t output_tokens) {
  v1::GenerateRequest request;
  request.mutable_tokens()->mutable_ids()->Add(prompt.begin(), prompt.end());
  request.mutable_sampling()->set_temperature(0.0F);
  request.mutable_stopping()->set_max_tokens(output_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_output()->set_token_ids(true);
  request.set_stream(true);
  return request;
}

}  // namespace invar::tools
