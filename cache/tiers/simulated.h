// SimulatedTier: a Tier out of a TierStore without threads, for the deterministic simulation: every call ends in
// Poll(), at a simulated time and with a fate that one seed decides. Only what a real tier may do happens: late,
// refused, lost, found damaged; never wrong bytes.
#pragma once

#include <cstdint>
#include <memory>

#include "base/circuit_breaker.h"
#include "cache/tiers/tier.h"
#include "cache/tiers/tier_store.h"

namespace invar::cache {

struct SimulatedTierOptions {
  uint64_t seed = 0;
  TierLimits limits = {};
  CircuitBreaker::Options breaker = {};

  // How long a call takes: something between, plus its bytes at this rate.
  TimeNs delay_min = 100'000;
  TimeNs delay_max = 10'000'000;
  double bytes_per_second = 1e9;

  // Fates, in calls of a thousand; the rest ends well.
  int stuck = 0;    // Takes until its deadline, at most `stuck_ns`, and is then late.
  int failed = 0;   // UNAVAILABLE; a put or drop may or may not have happened.
  int lost = 0;     // A put that says OK and stores nothing.
  int damaged = 0;  // A get finds the record damaged: DATA_LOSS, and the record is gone.
  TimeNs stuck_ns = TimeNs{30} * 1'000'000'000;
};

// Requires: `clock` outlives the tier. Threads: one.
std::unique_ptr<Tier> MakeSimulatedTier(std::unique_ptr<TierStore> store, const Clock& clock,
                                        const SimulatedTierOptions& options);

}  // namespace invar::cache
