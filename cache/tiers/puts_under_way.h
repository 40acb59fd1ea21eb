// PutsUnderWay: records on their way into a tier, so that one that is used before it is there is neither taken for gone
// nor for older than it is. What drivers of stores have in common. Threads: its owner's lock.
#pragma once

#include <algorithm>
#include <unordered_map>

#include "base/clock.h"
#include "cache/tiers/tier.h"
#include "cache/tiers/tier_store.h"

namespace invar::cache {

class PutsUnderWay {
 public:
  // Requires: `put` outlives its entry.
  void Add(const TierKey& key, TierTransfer& put) { puts_.emplace(key, &put); }
  void Remove(const TierKey& key, const TierTransfer& put) {
    const auto [begin, end] = puts_.equal_range(key);
    const auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second == &put; });
    if (found != end) puts_.erase(found);
  }

  // Whether one of them will bring the record; all that will take note.
  bool Use(const TierKey& key, const TimeNs used_at) {
    bool any = false;
    const auto [begin, end] = puts_.equal_range(key);
    std::for_each(begin, end, [&](const auto& entry) { any = entry.second->Use(used_at) || any; });
    return any;
  }

 private:
  std::unordered_multimap<TierKey, TierTransfer*, TierKeyHash> puts_;
};

}  // namespace invar::cache
