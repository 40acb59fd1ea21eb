// Placement on a large tree at a price: H_v(x) is the least (cost + price x checkpoints) in v's subtree when the
// nearest checkpoint above is at depth x, 0 <= x <= depth(v). H_v is concave, falling and piecewise linear:
//   g_v(x) = weight(v) (depth(v) - x) + sum over children of H_c(x)
//   H_v(x) = min(price + g_v(depth(v)), g_v(x))
// kept as its two ends and an ordered map of breakpoints; children are merged small to large, so one price costs
// O(n log^2 n). A checkpoint goes to v iff the nearest one above lies where g_v exceeds the cap. Exact in integers: a
// cut inside a segment becomes two breakpoints on the lattice of depths, the only places where H is ever asked. A
// budget is met by bisecting the price, then filling or dropping by marginal gain, since a tree's cost is not convex in
// the budget; tests hold it to 0.1 % of the exact saving (tree_dp.h).
// Threads: any; pure functions. Large ones are work for a thread beside the engine's.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/checkpoint/tree_dp.h"

namespace invar::cache {

// Nodes that minimise TreeCost + price x count, ascending. Requires: CheckTree(tree), 0 <= price <= kCostMax.
std::vector<int32_t> PlaceOnTreeAtPrice(TreeView tree, int64_t price);

struct TreeBudgetPlan {
  std::vector<int32_t> nodes;  // Ascending, at most the places asked for.
  int64_t price = 0;           // The least price whose own solution fits the places.
};

// Near-optimal nodes for at most `places` checkpoints.
TreeBudgetPlan PlaceOnTreeWithin(TreeView tree, int32_t places);

}  // namespace invar::cache
