// What a cache is told at its start.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "cache/block_pool.h"
#include "cache/cache_tuning.h"
#include "cache/state_shape.h"

namespace invar::cache {

struct CacheOptions {
  StateShape shape;
  int64_t budget_bytes = 0;  // Live sequences and everything cached.
  int64_t shared_bytes = 0;  // On top: memory that others hold a claim on while they need it.
  int32_t slots_without_bytes = 0;
  Backing backing = Backing::kMemory;
  CacheTuning tuning = TuningOf({});
  bool plans_on_a_thread = false;   // Of its own, at low priority; else where they are due, so that runs repeat.
  bool plans = true;                // Learn where prefixes of a class are come back to (placements that can).
  std::string identity = {};        // Model fingerprint and numerics id: what tiers must agree in.
  const Clock* clock = nullptr;     // Times planning for the report, and decides nothing; null: not timed.
  std::function<void()> wake = {};  // A tier has finished something: TakeArrivals. Any thread.
};

}  // namespace invar::cache
