// SpaceDrops: what tiers have still to forget. A tier may be slow, full or away when it is told; it is told again until
// it confirms. Each time, what is known of the space is forgotten here too: what was written since the last time goes
// with it. Threads: engine thread only.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>

#include "base/clock.h"
#include "cache/tiers/known_tier.h"
#include "cache/tiers/tier_events.h"

namespace invar::cache {

class SpaceDrops {
 public:
  // `deadline`: of one try. Requires: `tiers` outlives this.
  SpaceDrops(std::span<KnownTier> tiers, std::shared_ptr<TierEvents> events, TimeNs deadline)
      : tiers_(tiers), events_(std::move(events)), deadline_(deadline) {}

  void Drop(const TierSpaces& of, TimeNs now);
  // Tells again those that failed a while ago; gives when the next is due.
  TimeNs Retry(TimeNs now);
  // Drops that are not confirmed.
  int64_t pending() const { return static_cast<int64_t>(pending_.size()); }

 private:
  // Between two tries of one tier.
  static constexpr TimeNs kPauseNs = TimeNs{1} * 1'000'000'000;

  struct Pending {
    KnownTier* tier;
    TierSpaces of;
    TimeNs retry_at = kNever;  // kNever: under way.
  };
  using Place = std::list<Pending>::iterator;

  void Tell(Place drop, TimeNs now);

  // Set at construction.
  const std::span<KnownTier> tiers_;
  const std::shared_ptr<TierEvents> events_;  // With the tiers' threads.
  const TimeNs deadline_;

  std::list<Pending> pending_;
};

}  // namespace invar::cache
