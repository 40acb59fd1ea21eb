// See space_drops.h.
#include "cache/tiers/space_drops.h"

#include <algorithm>
#include <utility>

namespace invar::cache {

void SpaceDrops::Drop(const TierSpaces& of, const TimeNs now) {
  for (KnownTier& tier : tiers_) {
    // One that waits for its next try, of no more than this, is done with it.
    std::erase_if(pending_, [&](const Pending& drop) {
      return drop.tier == &tier && drop.retry_at != kNever && of.Cover(drop.of);
    });
    pending_.push_back({.tier = &tier, .of = of});
    Tell(std::prev(pending_.end()), now);
  }
}

TimeNs SpaceDrops::Retry(const TimeNs now) {
  TimeNs next = kNever;
  for (auto drop = pending_.begin(); drop != pending_.end(); ++drop) {
    if (drop->retry_at <= now) Tell(drop, now);
    next = std::min(next, drop->retry_at);
  }
  return next;
}

void SpaceDrops::Tell(const Place drop, const TimeNs now) {
  drop->tier->known().Forget(drop->of);
  drop->retry_at = kNever;
  const auto done = [this, events = events_, drop, now](const Status& status) {
    events->Post([this, drop, now, ok = status.ok()] {
      if (ok) {
        pending_.erase(drop);
      } else {
        drop->retry_at = now + kPauseNs;
      }
    });
    events->CountEnd();
  };
  const Status accepted = drop->tier->tier().Drop(drop->of, now + deadline_, done);
  if (!accepted.ok()) drop->retry_at = now + kPauseNs;
}

}  // namespace invar::cache
