// Placement on a tree of prefixes under one budget, exactly. F(v, a, k) is the least cost in v's subtree when the
// nearest checkpoint above v is at ancestor a and k checkpoints lie inside:
//   place at v: convolution over children c of F(c, v, .) at k - 1
//   skip:       weight(v) x (depth(v) - depth(a)) + convolution of F(c, a, .) at k
// O(P x places) time and memory for P = the sum of depths counted in nodes, so it serves small trees and judges
// tree_lagrangian.h, which serves large ones. Cost on a tree is NOT convex in the places: no single price finds every
// answer. Source: k-median on a directed tree (Vigneron, Gao, Golin, Italiano, Li, Information Processing Letters 74,
// 2000). Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace invar::cache {

// A compressed radix tree as its demand: nodes are the depths where requests ended and where prefixes branch.
struct TreeNode {
  int32_t parent = -1;  // Index of the node above, smaller than this one's; -1: directly below the root at depth 0.
  int32_t depth = 0;    // Tokens from the root; deeper than the parent's.
  int64_t weight = 0;   // Requests that shared exactly the path to here; may be 0 at a branch.
};
using TreeView = std::span<const TreeNode>;

// Stops the process unless parents come first, depths grow downwards, and weight x depth fits in kCostMax (demand.h).
void CheckTree(TreeView tree);

// Sum of weight x tokens to the nearest checkpoint at or above each node, or to the root. `placed`: node indices,
// ascending.
int64_t TreeCost(TreeView tree, std::span<const int32_t> placed);

// What losing each node's checkpoint, alone, would cost; for a node without one, what placing it there, alone, would
// save. One O(n) pass: the weight below that no deeper checkpoint covers x the tokens to the checkpoint above.
std::vector<int64_t> TreeMarginals(TreeView tree, std::span<const int32_t> placed);

// Nodes that minimise TreeCost with at most `places` checkpoints, ascending. Ties: fewest checkpoints.
std::vector<int32_t> PlaceOnTree(TreeView tree, int32_t places);

}  // namespace invar::cache
