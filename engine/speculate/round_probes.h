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

}  // namespace invar::engine
