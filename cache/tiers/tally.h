// Tally: the statistics of a tier, counted the same way for every kind and driver.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "cache/tiers/tier.h"
#include "cache/tiers/tier_guard.h"
#include "cache/tiers/tier_store.h"

namespace invar::cache {

enum class TierCall { kFind, kPut, kGet, kDrop };

// A rate that forgets: sums of bytes and seconds that shrink by a tenth at every transfer.
class DecayedRate {
 public:
  void Add(int64_t bytes, double seconds);
  double bytes_per_second() const { return seconds_ > 0 ? bytes_ / seconds_ : 0; }

 private:
  double bytes_ = 0;
  double seconds_ = 0;
};

// Threads: its owner's lock.
class TierTally {
 public:
  // Counts a call as in flight, or as refused. Errors: RESOURCE_EXHAUSTED saying what is full.
  Status Admit(TierCall call, int64_t bytes, const TierLimits& limits, std::string_view tier);
  // A call that was admitted has ended; `seconds` is the time the store worked on it.
  void End(TierCall call, const Status& status, int64_t bytes, double seconds);
  // A call that was refused for another reason.
  void Refuse(TierCall call, const Status& status);

  TierStats Read(const TierContents& contents, const TierGuard& guard, TimeNs now) const;

 private:
  struct InFlight {
    int64_t calls = 0;
    int64_t bytes = 0;
  };
  InFlight& WayOf(TierCall call);
  void Count(TierCall call, const Status& status);

  TierStats stats_;  // Without what is in flight.
  InFlight reading_, writing_, dropping_;
  DecayedRate writes_;
  DecayedRate reads_;
};

}  // namespace invar::cache
