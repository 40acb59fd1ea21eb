// What a cache is told at its start.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "cache/block_pool.h"
#include "cache/state_shape.h"

namespace invar::cache {

struct CacheOptions {
  StateShape shape;
  int64_t budget_bytes = 0;  // Live sequences and everything cached.
  int32_t slots_without_bytes = 0;
  Backing backing = Backing::kMemory;
  std::string placement = "optimal-dp";  // One of PlacementNames() (checkpoint/placement.h).
  int32_t placement_slots = 8;           // Most checkpoints a prompt that Place() chooses.
  bool plans = true;                     // Learn where prefixes of a class are come back to (placements that can).
  std::string eviction = "duel";         // Or one of EvictionOrderNames() (evict/orders.h).
  double probation_share = 0.02;         // Of the budget: most that planned checkpoints hold before their first hit.
  std::string identity = {};             // Model fingerprint and numerics id: what tiers must agree in.
  const Clock* clock = nullptr;          // Times planning for the report, and decides nothing; null: not timed.
  std::function<void()> wake = {};       // A tier has finished something: TakeArrivals. Any thread.
  TimeNs tier_read_limit = int64_t{2} * 1'000'000'000;
  TimeNs tier_write_limit = int64_t{30} * 1'000'000'000;
};

}  // namespace invar::cache
