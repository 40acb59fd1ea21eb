// CacheTuning: what an operator chooses about the prefix cache. Its defaults are those of config/config.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cache/tiers/tier.h"
#include "config/config.h"

namespace invar::cache {

struct CacheTuning {
  std::string placement;                // One of PlacementNames() (checkpoint/placement.h).
  int32_t planned_checkpoints_max = 0;  // Most checkpoints a prompt beside those at ends, branches and hints.
  std::string eviction;                 // "duel", or one of EvictionOrderNames() (evict/orders.h).
  double probation_share = 0;           // Of the budget: most that planned checkpoints hold before their first hit.
  TierDeadlines deadlines;
  int64_t tier_copy_bytes_max = 0;  // Copies on their way from tiers, and as much again to them.
};

inline CacheTuning TuningOf(const config::Config::Cache& config) {
  using std::chrono::nanoseconds;
  return {.placement = config.placement,
          .planned_checkpoints_max = static_cast<int32_t>(config.planned_checkpoints_max),
          .eviction = config.eviction,
          .probation_share = config.probation_share,
          .deadlines = {.read = nanoseconds(config.tiers.read_timeout).count(),
                        .write = nanoseconds(config.tiers.write_timeout).count()},
          .tier_copy_bytes_max = config.tiers.queue_bytes_max};
}

}  // namespace invar::cache
