// One simulated run: the real engine on a simulated clock, driven step by step through a schedule, every event judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/stats.h"
#include "tools/sim/planted.h"
#include "tools/sim/schedule.h"

namespace invar::sim {

// Problems are sentences that name the request. Empty lists: the run was right.
struct Outcome {
  std::vector<std::string> wrong;   // An event, status or number that must not be.
  std::vector<std::string> stuck;   // No final event, or it came too late.
  std::vector<std::string> leaked;  // Memory or events kept after the end.
  uint64_t trace = 0;               // Hash of all events in order: equal runs have equal traces.

  // What happened, so that tests can show the schedules reach it.
  int64_t finished_stop = 0, finished_length = 0, cancelled = 0, expired = 0, failed = 0, rejected = 0;
  int64_t preemptions = 0, pauses = 0, tokens = 0, stop_strings = 0, scored_prompts = 0;
  // Requests that resumed from the cache, those that did with the help of a tier, tokens that preempted ones did not
  // run again, blocks evicted, flushes sent.
  int64_t hits = 0, tier_hits = 0, resumed_after_preemption = 0, evicted = 0, flushes = 0;

  // Requests that went on with what a peer brought, and prefixes that did not come.
  int64_t peer_hits = 0, peer_faults = 0;

  // Of the slow tier: requests that moved out and came back, layers' streams, faults of its file that were drawn,
  // failures that the engine saw, tokens drafted beside streams.
  int64_t moved_out = 0, brought_back = 0, streams = 0, file_faults = 0, slow_tier_failures = 0, drafted_beside = 0;

  // Of speculation: tokens accepted, rounds by their number (engine::kAcceptedBounds), steps that had no draft.
  int64_t accepted = 0, fallbacks = 0;
  decltype(engine::SpeculationStats::accepted_lengths) accepted_lengths = {};

  bool ok() const { return wrong.empty() && stuck.empty() && leaked.empty(); }
  std::string FirstProblem() const;
};

Outcome RunSchedule(const Schedule& schedule, Plant plant);

// The smallest reduction found under which the schedule still fails: requests are dropped one by one, then features,
// until nothing more can go. Requires: the schedule fails.
Reduction Minimize(const Schedule& schedule, Plant plant);

}  // namespace invar::sim
