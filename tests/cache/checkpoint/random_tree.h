// Random trees of prefixes, in shapes from a chain to a star.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "cache/checkpoint/tree_dp.h"
#include "tests/cache/checkpoint/brute_force.h"

namespace invar::cache {

// `reach` = how many nodes back a parent may lie: 1 makes a chain, `nodes` a bushy tree. A quarter of the nodes are
// mere branches without weight.
inline std::vector<TreeNode> RandomTree(SplitMix64& random, const int32_t nodes, const int32_t reach,
                                        const int32_t step_max, const int32_t weight_max) {
  std::vector<TreeNode> tree;
  for (int32_t v = 0; v < nodes; ++v) {
    const int32_t parent = v == 0 ? -1 : std::max(-1, v - Pick(random, 1, reach + 1));
    const int32_t above = parent < 0 ? 0 : tree[parent].depth;
    const int64_t weight = Pick(random, 0, 4) == 0 ? 0 : Pick(random, 1, weight_max + 1);
    tree.push_back({.parent = parent, .depth = above + Pick(random, 1, step_max + 1), .weight = weight});
  }
  return tree;
}

inline std::string AsCode(const TreeView tree) {
  std::ostringstream out;
  out << "std::vector<TreeNode>{";
  for (const TreeNode& node : tree) out << "{" << node.parent << ", " << node.depth << ", " << node.weight << "}, ";
  out << "}";
  return out.str();
}

// Cost by its definition, node by node.
inline int64_t TreeCostByDefinition(const TreeView tree, const uint32_t placed) {
  int64_t cost = 0;
  for (size_t v = 0; v < tree.size(); ++v) {
    auto at = static_cast<int32_t>(v);
    while (at >= 0 && (placed >> at & 1U) == 0) at = tree[at].parent;
    cost += tree[v].weight * (tree[v].depth - (at < 0 ? 0 : tree[at].depth));
  }
  return cost;
}

inline uint32_t Bits(const std::vector<int32_t>& nodes) {
  uint32_t bits = 0;
  for (const int32_t v : nodes) bits |= 1U << v;
  return bits;
}

}  // namespace invar::cache
