// Workload: what a load test asks for, read from YAML, and the list of requests it stands for.
// Planning is pure: one seed gives the same prompts, lengths and arrival times on every machine, so that two servers or
// two versions are asked the same. Arrivals are a Poisson process (open loop) or "as soon as one ends" (closed loop).
//
//   name: chat                                  # for the report
//   seed: 1
//   requests: 200                               # measured ones
//   warmup_requests: 8                          # sent first, one after another, not measured
//   arrivals: {mode: closed, concurrency: 8}    # or {mode: open, rate_per_s: 4, in_flight_max: 256}
//   prompt_tokens: {min: 64, max: 256}          # own part of each prompt, uniform
//   output_tokens: {min: 16, max: 64}           # exactly this many are generated
//   shared_prefix: {groups: 4, tokens: 128}     # before the own part; the group is drawn per request
//   temperature: 0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace invar::bench {

struct TokenRange {
  int32_t min = 1;
  int32_t max = 1;  // Inclusive.
};

struct Workload {
  enum class Mode { kClosed, kOpen };

  std::string name = "unnamed";
  uint64_t seed = 1;
  int32_t requests = 100;
  int32_t warmup_requests = 4;
  Mode mode = Mode::kClosed;
  int32_t concurrency = 8;      // Closed loop only.
  double rate_per_s = 1.0;      // Open loop only: mean arrivals.
  int32_t in_flight_max = 256;  // Open loop only: later arrivals wait, and their wait counts.
  TokenRange prompt_tokens{64, 64};
  TokenRange output_tokens{32, 32};
  int32_t prefix_groups = 0;  // 0: no shared prefix.
  int32_t prefix_tokens = 0;
  double temperature = 0.0;
};

struct PlannedRequest {
  double arrival_s = 0.0;  // After the start of the measured part; 0 in a closed loop.
  std::vector<int32_t> prompt;
  int32_t output_tokens = 1;
};

// Errors: INVALID_ARGUMENT naming the key: unknown, missing, of the wrong type or out of its range.
StatusOr<Workload> ParseWorkload(const std::string& yaml);
StatusOr<Workload> LoadWorkload(const std::string& path);

// The measured requests, in order of arrival. Tokens are drawn from [0, vocabulary_size).
// Requires: vocabulary_size > 0.
std::vector<PlannedRequest> PlanRequests(const Workload& workload, int32_t vocabulary_size);
// Of the same shape with other tokens, so that they leave no useful prefix behind.
std::vector<PlannedRequest> PlanWarmup(const Workload& workload, int32_t vocabulary_size);

}  // namespace invar::bench
