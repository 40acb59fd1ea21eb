// When what is not expected to pay is tried all the same: acceptance, link and load change, and only trying can tell.
// Each try costs, so a pause follows it. Pure: times in, a verdict out. Threads: engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace invar::engine {

// How long it is from a try to the next one: so many times what it took, so many times the pause before, within bounds.
struct TryPauses {
  TimeNs first = 0;  // And the least.
  TimeNs most = kNever;
  int64_t over_try = 0;
  int64_t over_pause = 0;
};

// The mechanism of both below.
class Tries {
 public:
  static constexpr TimeNs kMostTryNs = 10'000'000'000;  // A try that nobody comes to verify in ends too.

  explicit Tries(const TryPauses& pauses) : pauses_(pauses), pause_(pauses.first) {}

  // Whether to try now. `needless`: it is done anyway. `verifies`: counter of those of rounds; a try ends after
  // `ends_after`.
  bool Look(const bool needless, const int64_t ends_after, const int64_t verifies, const TimeNs now) {
    if (needless) {
      began_ = next_ = kNever;
      pause_ = pauses_.first;
      return false;
    }
    if (under_way()) {
      if (verifies - verifies_ < ends_after && now - began_ < kMostTryNs) return true;
      const TimeNs longest = std::max(pauses_.over_try * (now - began_), pauses_.over_pause * pause_);
      pause_ = std::min(pauses_.most, std::max(pauses_.first, longest));
      began_ = kNever;
      next_ = now + pause_;
    }
    if (next_ == kNever) next_ = now + pause_;
    if (now < next_) return false;
    began_ = now;
    verifies_ = verifies;
    return true;
  }
  bool under_way() const { return began_ != kNever; }

 private:
  const TryPauses pauses_;
  TimeNs began_ = kNever;  // The try under way.
  TimeNs next_ = kNever;
  TimeNs pause_;
  int64_t verifies_ = 0;  // When it began.
};

// RoundProbes: rounds where plain decoding is expected to be faster.
class RoundProbes {
 public:
  static constexpr int64_t kVerifies = 4;  // That a try ends after.
  static constexpr TimeNs kFirstPauseNs = 60'000'000'000;
  static constexpr TimeNs kMostPauseNs = 600'000'000'000;
  static constexpr TimeNs kMostTryNs = Tries::kMostTryNs;
  static constexpr int64_t kPauseOverTry = 100;

  // `pays`: rounds are taken anyway.
  bool Look(const bool pays, const int64_t verifies, const TimeNs now) {
    return tries_.Look(pays, kVerifies, verifies, now);
  }

 private:
  Tries tries_{{.first = kFirstPauseNs, .most = kMostPauseNs, .over_try = kPauseOverTry, .over_pause = 2}};
};

// DraftTries: drafts where rounds go without, for one round of all. What drafts take and how often they are right is
// learned of drafts only, and the machine or the text may have changed since. A try takes a 64th of the time at most.
class DraftTries {
 public:
  static constexpr TimeNs kLeastPauseNs = 5'000'000'000;
  static constexpr int64_t kPauseOverTry = 64;

  // `drafts`: rounds do anyway. `in_a_round`: verifies of one round of all.
  bool Look(const bool drafts, const int64_t in_a_round, const int64_t verifies, const TimeNs now) {
    return tries_.Look(drafts, in_a_round, verifies, now);
  }
  bool under_way() const { return tries_.under_way(); }

 private:
  Tries tries_{{.first = kLeastPauseNs, .over_try = kPauseOverTry}};
};

}  // namespace invar::engine
