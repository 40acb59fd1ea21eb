// A device of two tiers on a virtual clock: steps of compute back to back, one stream at a time on the link. The
// engine's own scheduler (engine/speculate/stagger.h) decides; only bytes, products and time are made up, and how many
// drafted tokens a verify accepts is drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/speculate/acceptance.h"
#include "engine/speculate/cost_model.h"
#include "engine/speculate/stagger.h"

namespace invar::tools {

// One request of the simulation. It never ends: throughput is that of a server that is always full.
struct SimulatedRequest {
  double full_kv_bytes = 0;
  double acceptance = 0;
  int64_t prefix = 0;        // As RoundView::prefix.
  double ends_at_s = 1e300;  // Cancelled then, in whatever phase it is.
};

struct StaggerRun {
  engine::StaggerLimits limits = {};
  int32_t draft_min = 1;
  int32_t draft_max = 1;
  int32_t rounds = 60;  // Of each request on average, before the clock stops.
  uint64_t seed = 1;
  engine::AcceptanceEstimate* learns = nullptr;  // Told of every round, if any.
};

struct StaggerOutcome {
  double tokens_per_s = 0;
  double seconds = 0;       // Virtual, counted.
  double link_share = 0;    // Of the time that the link was busy.
  double accepted_run = 0;  // Tokens a round.
  double gap_mean_s = 0;    // Between two commits of a request.
  double gap_p99_s = 0;
  std::vector<double> gap_mean_of_each_s = {};
  int32_t streams_of_nobody = 0;  // Still held at the end though all their requests have gone.
};

// The first 30 % of the virtual time is not counted. Requires: at least one request.
StaggerOutcome SimulateStagger(const engine::TwoTierDevice& device, const engine::SpeculationLoad& load,
                               std::span<const SimulatedRequest> requests, const StaggerRun& run);

// `residents` equal requests of the load, in groups of load.prefix_group.
std::vector<SimulatedRequest> EqualRequests(const engine::SpeculationLoad& load, int32_t residents);

}  // namespace invar::tools
