// What the cache did and holds: plain numbers for tests, the admin service and metrics.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cache/prefix_match.h"
#include "cache/tier_counts.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

// One tier.
struct TierReport {
  std::string_view name;
  TierStats stats;
};

struct PlacementReport {
  // Counters; they only grow.
  int64_t queries = 0;  // Sequences that asked (those told not to read not counted).
  int64_t queried_tokens = 0;
  int64_t kv_match_tokens = 0;
  int64_t state_match_tokens = 0;
  int64_t recomputed_tokens = 0;  // Run again though their KV was there: kv - state match, where positive.
  std::array<int64_t, kCheckpointKinds> checkpoints_made = {};  // By CheckpointKind.
  int64_t checkpoints_skipped = 0;                              // Wanted, but memory was not to be had.
  std::array<int64_t, kCheckpointKinds> checkpoints_evicted_by_kind = {};
  int64_t checkpoints_evicted = 0;  // All of them.
  int64_t pages_evicted = 0;
  int64_t eviction_passes = 0;
  int64_t plans = 0;           // Prompts for which the planner was asked.
  int64_t plan_ns = 0;         // Time that took and what it learned from requests, by CacheOptions::clock.
  int64_t priors_renewed = 0;  // Times a class of prefixes was learned anew.

  // State of things.
  int64_t nodes = 0;
  int64_t checkpoints = 0;
  int64_t budget_bytes = 0;
  int64_t live_bytes = 0;
  int64_t cached_bytes = 0;
  // What a checkpoint must save to be worth its memory by what was evicted of late: expected tokens. 0: no pressure.
  double checkpoint_price_tokens = 0;
  int64_t classes = 0;              // Of prefixes, about which the planner knows something.
  std::string_view eviction_order;  // Followed at the moment; one of:
  std::span<const std::string_view> eviction_orders;
  std::vector<TierReport> tiers;  // The fastest first.
  PrefixWriteCounts tier_writes;
  PrefixLoadCounts tier_loads;
};

}  // namespace invar::cache
