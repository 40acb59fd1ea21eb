// RoundProbes: when rounds that are not expected to pay are tried all the same: acceptance, link and load change, and
// only rounds can tell. Each try costs, so the pause to the next one grows: at least so many times what the try took,
// and twice the pause before, within bounds. Pure: times in, a verdict out. Threads: engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace invar::engine {

class RoundProbes {
 public:
  static constexpr int64_t kVerifies = 4;  // That a try ends after.
  static constexpr TimeNs kFirstPauseNs = 60'000'000'000;
  static constexpr TimeNs kMostPauseNs = 600'000'000'000;
  static constexpr TimeNs kMostTryNs = 10'000'000'000;  // A try that nobody comes to verify in ends too.
  static constexpr int64_t kPauseOverTry = 100;

  // Whether to try now. `pays`: rounds are taken anyway. `verifies`: counter of those of rounds.
  bool Look(const bool pays, const int64_t verifies, const TimeNs now) {
    if (pays) {
      began_ = next_ = kNever;
      pause_ = kFirstPauseNs;
      return false;
    }
    if (began_ != kNever) {
      if (verifies - verifies_ < kVerifies && now - began_ < kMostTryNs) return true;
      pause_ = std::min(kMostPauseNs, std::max(kPauseOverTry * (now - began_), 2 * pause_));
      began_ = kNever;
      next_ = now + pause_;
    }
    if (next_ == kNever) next_ = now + pause_;
    if (now < next_) return false;
    began_ = now;
    verifies_ = verifies;
    return true;
  }

 private:
  TimeNs began_ = kNever;  // The try under way.
  TimeNs next_ = kNever;
  TimeNs pause_ = kFirstPauseNs;
  int64_t verifies_ = 0;  // When it began.
};

// DraftTries: when rounds that go without drafts are tried with some, for one round of all. What drafts take and how
// often they are right is learned of drafts only, and the machine or the text may have changed since. A try takes a
// 64th of the time at most. Pure, as above.
class DraftTries {
 public:
  static constexpr TimeNs kLeastPauseNs = 5'000'000'000;
  static constexpr int64_t kPauseOverTry = 64;

  // Whether to draft now. `drafts`: rounds do anyway. `in_a_round`: verifies of one round of all.
  bool Look(const bool drafts, const int64_t in_a_round, const int64_t verifies, const TimeNs now) {
    if (drafts) {
      began_ = next_ = kNever;
      return false;
    }
    if (began_ != kNever) {
      if (verifies - verifies_ < in_a_round && now - began_ < RoundProbes::kMostTryNs) return true;
      next_ = now + std::max(kLeastPauseNs, kPauseOverTry * (now - began_));
      began_ = kNever;
    }
    if (next_ == kNever) next_ = now + kLeastPauseNs;
    if (now < next_) return false;
    began_ = now;
    verifies_ = verifies;
    return true;
  }
  bool under_way() const { return began_ != kNever; }

 private:
  TimeNs began_ = kNever;
  TimeNs next_ = kNever;
  int64_t verifies_ = 0;  // When it began.
};

}  // namespace invar::engine
