// LinkMeter: how fast the way to a producer is, by what crossed it. Answers that are small say how long a round trip
// is; large ones, and prefixes that lay ready, how many bytes a second come. Threads: its owner's lock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "engine/plan_transfer.h"

namespace invar::server {

class LinkMeter {
 public:
  // Enough for a rate, and soon over: 20 ms at 100 Mbit/s.
  static constexpr int64_t kPaddingBytes = int64_t{256} << 10;

  // A rate that is older is asked for again: nothing else would, where it says that nothing is worth fetching.
  static constexpr TimeNs kFreshNs = TimeNs{10} * 1'000'000'000;

  // Of the next question: 0 while the rate is known.
  int64_t padding_wanted(const TimeNs now) const { return IsFresh(now) ? 0 : kPaddingBytes; }

  // An answer of about `bytes` bytes came after so long.
  void Answered(const double seconds, const int64_t bytes, const TimeNs now) {
    if (bytes >= kPaddingBytes) return Learn(static_cast<double>(bytes) / std::max(seconds, 1e-6), now);
    // The shortest one is the link's; what others take longer is the producer's. It drifts up, should the link change.
    const double round_trip = speed_.round_trip_seconds;
    speed_.round_trip_seconds = round_trip == 0 ? seconds : std::min(seconds, 1.1 * round_trip);
  }
  // Payload came in so long, from its first byte to its last. `lay_ready`: nothing had to be computed meanwhile.
  void Came(const int64_t bytes, const double seconds, const bool lay_ready, const TimeNs now) {
    if (bytes < kPaddingBytes || seconds <= 0) return;
    const double rate = static_cast<double>(bytes) / seconds;
    if (lay_ready || rate > speed_.bytes_per_second) Learn(rate, now);
  }
  const engine::LinkSpeed& speed() const { return speed_; }

 private:
  bool IsFresh(const TimeNs now) const { return speed_.bytes_per_second > 0 && now - learnt_at_ < kFreshNs; }
  void Learn(const double rate, const TimeNs now) {
    speed_.bytes_per_second = IsFresh(now) ? 0.5 * speed_.bytes_per_second + 0.5 * rate : rate;
    learnt_at_ = now;
  }

  engine::LinkSpeed speed_;
  TimeNs learnt_at_ = 0;
};

}  // namespace invar::server
