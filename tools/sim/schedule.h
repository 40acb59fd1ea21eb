// Schedule: everything a simulated run needs, drawn from one seed before the run: engine limits, requests, and what the
// outside does to them. Plain data, so that it can be reduced and run again.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cache/tiers/simulated.h"
#include "engine/engine.h"
#include "models/model.h"
#include "tools/sim/simulated_files.h"
#include "tools/sim/simulated_peer.h"

namespace invar::sim {

// How a request's reader behaves: it takes up to `burst` events with a chance of `percent` between two steps.
struct Reader {
  int32_t bound = 1'000'000;  // Push says "behind" beyond so many unread events.
  int32_t percent = 100;
  int32_t burst = 1'000'000;
  bool stalls = false;  // Stops reading for good after its first burst.
};

struct PlannedRequest {
  int32_t index = 0;  // In the unreduced schedule: names it when replaying.
  TimeNs arrives_at = 0;
  engine::Request request;
  std::optional<TimeNs> cancel_at;
  Reader reader;
  int32_t agreement_percent = 0;  // Of the dialled drafter with its answer.
};

struct PlannedFlush {
  TimeNs at = 0;
  cache::FlushOptions what;
};

// A tier behind the cache that is late, refuses, loses and damages as its options say.
struct PlannedTier {
  int64_t budget_bytes = 0;
  cache::SimulatedTierOptions options;
};

struct Schedule {
  uint64_t seed = 0;
  engine::EngineOptions options;
  models::FingerprintOptions model;
  int32_t pages = 0;       // The KV budget in pages.
  int32_t usable_ids = 0;  // The tokenizer's vocabulary, at most the model's.
  TimeNs step_time = 0;    // Clock time from step to step.
  std::optional<TimeNs> abort_at;
  std::optional<PlannedTier> tier;
  std::optional<SimulatedFileOptions> slow_tier;  // Where full KV of those who draft on views moves to.
  std::optional<PeerOptions> peer;                // Another instance, for requests that allow it.
  std::vector<PlannedFlush> flushes;              // In order of time.
  std::vector<PlannedRequest> requests;           // In order of arrival.
};

Schedule MakeSchedule(uint64_t seed);

// What to leave out of a schedule: the words of a minimized failure. Features: "cancel", "deadline", "slow-reader",
// "abort", "sampling", "penalties", "stop", "logprobs", "priority", "cache", "flush", "tier", "slow-tier", "peer",
// "hints", "salt", "bypass", "speculation".
struct Reduction {
  std::optional<std::vector<int32_t>> only;  // Indexes of the requests that stay.
  std::set<std::string> without;
};
const std::vector<std::string>& Features();
Schedule Reduce(Schedule schedule, const Reduction& reduction);

}  // namespace invar::sim
