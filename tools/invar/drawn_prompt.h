// Prompts of token ids drawn at random, for benches of a daemon.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "invar/v1/generation.pb.h"

namespace invar::tools {

// `count` ids below `vocabulary_size`.
std::vector<int32_t> DrawTokens(std::mt19937_64& random, int32_t count, int32_t vocabulary_size);

// A streamed request for exactly `output_tokens` greedy tokens, told as ids.
v1::GenerateRequest GreedyRequest(const std::vector<int32_t>& prompt, int32_t output_tokens);

}  // namespace invar::tools
