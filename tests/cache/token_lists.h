// Lists of tokens to try the cache with.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace invar::cache {

using Tokens = std::vector<TokenId>;

// first, first + 1, ...: `count` of them.
inline Tokens Ids(const int32_t first, const int32_t count) {
  Tokens tokens;
  for (int32_t i = 0; i < count; ++i) tokens.emplace_back(first + i);
  return tokens;
}

inline Tokens Join(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace invar::cache
