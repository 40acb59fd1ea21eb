// ThreadedTier: a Tier out of a TierStore, for the daemon. Bounded queue, reads before writes, a few I/O threads that
// work on the store, and one thread that ends calls whose deadline has passed, so that a store stuck in a system call
// costs misses. A store that goes on like that is left alone for a while (tier_guard.h): then they cost no wait either.
#pragma once

#include <cstdint>
#include <memory>

#include "base/circuit_breaker.h"
#include "cache/tiers/tier.h"
#include "cache/tiers/tier_store.h"

namespace invar::cache {

struct ThreadedTierOptions {
  // Two, so that a read does not wait for the whole of a write.
  int threads = 2;
  TierLimits limits = {};
  CircuitBreaker::Options breaker = {};
};

// Deadlines are of `clock`, which must run in real time and outlive the tier.
// The destructor waits for system calls that are running: a file system that never answers again holds it up.
std::unique_ptr<Tier> MakeThreadedTier(std::unique_ptr<TierStore> store, const Clock& clock,
                                       const ThreadedTierOptions& options);

}  // namespace invar::cache
