// The embedded hybrid and its fine-tune as a pair: a text that both know, and a profile of them, calibrated in a few
// seconds on few windows. What the codes are worth is judged elsewhere (scd_pair_test); here they must only be right.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"

namespace invar::testing {

// These files of the project one after another, by the pair's tokenizer. Prose stays much the same.
std::vector<TokenId> ProseTokens(const std::vector<std::string>& files);
// Some of it.
const std::vector<TokenId>& PairTokens();

// Calibrates the pair into `path`, on windows from `first_token` on: other ones give another profile.
void CalibrateTinyPair(const std::string& path, size_t first_token = 0);

}  // namespace invar::testing
