// DraftOffers: guesses that come from outside of the engine: whoever has them puts them here, and the drafter `offered`
// takes them (speculate/offered.cc). A later offer replaces an earlier one. Threads: any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"

namespace invar::engine {

class DraftOffers {
 public:
  // `first`: tokens of the sequence, prompt and output, before the first guess.
  void Put(const int32_t first, std::vector<TokenId> guesses) {
    const MutexLock lock(mu_);
    first_ = first;
    guesses_ = std::move(guesses);
  }

  // At most `most` of those behind `known`; none where the known tokens are not those that the guesses went on from.
  std::vector<TokenId> Behind(const std::span<const TokenId> known, const int32_t most) const {
    const MutexLock lock(mu_);
    const int64_t used = std::ssize(known) - first_;
    if (used < 0 || used >= std::ssize(guesses_)) return {};
    if (!std::equal(guesses_.begin(), guesses_.begin() + used, known.end() - used)) return {};
    const auto begin = guesses_.begin() + used;
    return {begin, begin + std::min<int64_t>(most, guesses_.end() - begin)};
  }

 private:
  mutable Mutex mu_;
  int32_t first_ GUARDED_BY(mu_) = 0;
  std::vector<TokenId> guesses_ GUARDED_BY(mu_);
};

}  // namespace invar::engine
