// PlacementPolicy: where checkpoints of a prefix go, from the expected demand and a budget. Policies are pure, so the
// planner, `invar plan` and the cache simulation judge the same code.
// A new policy is one file, one declaration in policies.h and one line in registry.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cache/checkpoint/demand.h"

namespace invar::cache {

// Place() minimises RecomputeCost + price x (checkpoints placed), with at most `places` placed.
struct PlacementProblem {
  DemandView demand{};               // Depths from the start of the prefix, at most `length`.
  int32_t length = 0;                // N: tokens of the prefix; at least 1.
  int32_t places = 0;                // M: most checkpoints to place; at least 0.
  int64_t price = 0;                 // What one checkpoint must save, weight x tokens.
  std::span<const int32_t> fixed{};  // Checkpoints that exist anyway, ascending in 1..length; not placed again.
  int32_t restore_tokens = 0;        // Work of one restore, in tokens of prefill.
};

// What the cache does beside Place(): a policy is a whole behaviour when it runs, not only a formula.
struct PlacementTraits {
  bool keeps_kv = false;      // Attention KV outlives its request.
  bool at_end = false;        // Checkpoint at the end of the prompt's stable part and of the request.
  bool at_branch = false;     // Checkpoint where the attention match went deeper than the state match.
  bool at_hints = false;      // Checkpoint at the caller's hints and at the end of a stable prompt.
  bool reads_demand = false;  // Place() learns; the others give the same positions whatever was observed.
};

class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;
  virtual PlacementTraits traits() const = 0;
  // Positions ascending and distinct, in 1..length. Threads: any. Errors: none; nothing worth placing is an empty list.
  virtual std::vector<int32_t> Place(const PlacementProblem& problem) const = 0;
};

// The policy of that name, or nullptr. Threads: any.
std::unique_ptr<PlacementPolicy> MakePlacement(std::string_view name);

// All names, the default first.
std::span<const std::string_view> PlacementNames();

}  // namespace invar::cache
