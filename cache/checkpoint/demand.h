// Demand: how much weight of later requests is expected to stop matching at each depth, and what a set of checkpoints
// makes them run again. Everything that plans or judges placements speaks in these few types.
// Costs are integers (weight x tokens), so equal inputs give equal plans on every machine.
// Threads: any; values and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace invar::cache {

// The weight of one whole request: decayed counts keep 16 bits behind the point.
inline constexpr int64_t kWeightOne = int64_t{1} << 16;

// Largest sum of weights x largest depth that a solver takes. Intermediate values stay within twice that, below 2^63.
inline constexpr int64_t kCostMax = int64_t{1} << 61;

// `weight` of requests share exactly `depth` tokens with what is cached.
struct DepthWeight {
  int32_t depth = 0;   // Tokens; at least 1.
  int64_t weight = 0;  // More than 0.
  bool operator==(const DepthWeight&) const = default;
};

// A demand is sorted: depths strictly ascending. The depths that occur are its support.
using Demand = std::vector<DepthWeight>;
using DemandView = std::span<const DepthWeight>;

// Demand of single observations in any order, kWeightOne each. Depths of 0 or less cost nothing and are left out;
// deeper ones than `length` count as `length`.
Demand DemandOfDepths(std::span<const int32_t> depths, int32_t length);

// Every depth rounded down to a multiple of `grid`. Placing on that grid costs the same up to a constant
// (sum of weight x (depth mod grid)), so solving the folded demand is exact for placements on the grid.
Demand FoldToGrid(DemandView demand, int32_t grid);

int64_t TotalWeight(DemandView demand);

// Sum of weight x tokens run again when requests resume at the deepest of `positions` (ascending) that is not beyond
// their depth, or at 0. Resuming anywhere but at 0 costs `restore_tokens` more, in tokens of work.
int64_t RecomputeCost(DemandView demand, std::span<const int32_t> positions, int32_t restore_tokens = 0);

// Stops the process unless `demand` is sorted, positive, and within kCostMax.
void CheckDemand(DemandView demand);

}  // namespace invar::cache
