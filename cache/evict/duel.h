// DuelScore: which of two eviction orders to follow. No order wins on every load, so both are played on directories,
// caches of the same budget that hold tokens and count bytes but have no memory behind them (a 3,000th of what they
// stand for at 12 KiB of KV a token), and the cache follows the one whose directory saved more of late. Set dueling,
// without its sampling of sets: Qureshi et al., "Adaptive Insertion Policies for High Performance Caching", ISCA 2007.
// A prefix tree has no sets to sample (one system prompt can be the root of all), and whole directories are cheap
// enough not to need it. Threads: one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace invar::cache {

class DuelScore {
 public:
  // A request resumed after so many tokens in each of the two directories.
  void Count(const std::array<int32_t, 2>& resumed_tokens) {
    for (std::size_t i = 0; i < saved_.size(); ++i) saved_[i] += kStep * (resumed_tokens[i] - saved_[i]);
    const std::size_t other = 1 - winner_;
    if (++requests_ < kRequestsMin) return;
    if (saved_[other] > kMargin * saved_[winner_]) winner_ = other;
  }
  // 0 or 1; 0 before there is a difference.
  std::size_t winner() const { return winner_; }

 private:
  // Half of what is remembered is of the last 700 requests: more than a cache under pressure holds.
  static constexpr double kStep = 1.0 / 1024;
  // Fewer say nothing: both directories fill up first.
  static constexpr int64_t kRequestsMin = 1024;
  // Following costs something too: what one order kept is not what the other would have.
  static constexpr double kMargin = 1.02;

  std::array<double, 2> saved_ = {};  // Tokens a request, of late.
  std::size_t winner_ = 0;
  int64_t requests_ = 0;
};

}  // namespace invar::cache
