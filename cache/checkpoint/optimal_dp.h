// The exact placement on one prefix: cost[m][j] = min over s of cost[m-1][before s] + w(s, j), where the last
// checkpoint s serves every depth from s to j. With P and Q the running sums of weight and weight x depth,
//   w(s, j) = Q(j) - Q(before s) - s (P(j) - P(before s)),
// so each s is a line of slope -s evaluated at P(j). Slopes fall with s and P grows with j: the lower hull of the lines
// is a queue, each line enters and leaves once, and a layer costs O(K) for K support points. An optimal checkpoint can
// always lie on the support (moving it up to the next depth that occurs only lowers the cost), so K replaces N.
// Ties: fewest checkpoints, then the shallowest last one, then the shallowest before it and so on: a shallower
// checkpoint is shared by more requests. Source: sparse prefix caching (arXiv 2605.05219); the Monge structure:
// Woeginger, Operations Research Letters 27, 2000. Threads: any; nothing here keeps state.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/checkpoint/demand.h"

namespace invar::cache {

// The best placements of 0..places checkpoints, all from one run: O(K x places) time, 4 bytes a cell.
class ChainDp {
 public:
  // Requires: CheckDemand(demand), places >= 0, restore_tokens >= 0. Resuming at a checkpoint costs `restore_tokens` of
  // work more than the tokens run again; checkpoints at or before that depth never pay.
  ChainDp(DemandView demand, int32_t places, int32_t restore_tokens = 0);

  // Most checkpoints that were considered: more than one a support point cannot help.
  int32_t places() const { return static_cast<int32_t>(costs_.size()) - 1; }
  // Least cost with at most `places` checkpoints. Convex in `places`: gains fall.
  int64_t Cost(const int32_t places) const { return costs_[places]; }
  // The positions that reach it, ascending.
  std::vector<int32_t> Positions(int32_t places) const;

 private:
  std::vector<int32_t> depths_;  // The support.
  std::vector<int64_t> costs_;   // [places + 1]
  std::vector<int32_t>
      choices_;  // [places][K + 1]: last checkpoint among the first j depths, or -1: this place unused.
};

// The price form: positions that minimise RecomputeCost + price x count, with any count. O(K).
// Requires: as ChainDp, and 0 <= price <= kCostMax.
std::vector<int32_t> PlaceAtPrice(DemandView demand, int64_t price, int32_t restore_tokens = 0);

}  // namespace invar::cache
