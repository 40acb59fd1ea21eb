// Tables are built from the leaves up (children have larger indices) and kept, so that the trace from the roots down
// can repeat each decision instead of storing it.
#include "cache/checkpoint/tree_dp.h"

#include <algorithm>

#include "base/check.h"
#include "cache/checkpoint/demand.h"

namespace invar::cache {
namespace {

// Least cost by number of checkpoints used at most; never longer than the subtree or the budget allows.
using Costs = std::vector<int64_t>;

std::vector<bool> Marks(const TreeView tree, const std::span<const int32_t> placed) {
  std::vector<bool> marks(tree.size(), false);
  for (const int32_t v : placed) marks[v] = true;
  return marks;
}

// Depth of the nearest checkpoint strictly above each node.
std::vector<int32_t> DepthsAbove(const TreeView tree, const std::vector<bool>& marks) {
  std::vector<int32_t> above(tree.size(), 0);
  for (size_t v = 0; v < tree.size(); ++v) {
    const int32_t parent = tree[v].parent;
    if (parent >= 0) above[v] = marks[parent] ? tree[parent].depth : above[parent];
  }
  return above;
}

// Best split of the budget between two parts.
Costs Convolve(const Costs& a, const Costs& b, const int32_t places) {
  const size_t size = std::min<size_t>(a.size() + b.size() - 1, places + 1);
  Costs sum(size, INT64_MAX);
  for (size_t i = 0; i < std::min(a.size(), size); ++i) {
    for (size_t j = 0; j < b.size() && i + j < size; ++j) sum[i + j] = std::min(sum[i + j], a[i] + b[j]);
  }
  return sum;
}

class TreeDp {
 public:
  TreeDp(const TreeView tree, const int32_t places) : tree_(tree), places_(places), children_(tree.size()) {
    std::vector<int32_t> level(tree.size(), 0);  // Ancestors of v, the root counted: columns of its table.
    for (size_t v = 0; v < tree.size(); ++v) {
      const int32_t parent = tree[v].parent;
      level[v] = parent < 0 ? 1 : level[parent] + 1;
      (parent < 0 ? tops_ : children_[parent]).push_back(static_cast<int32_t>(v));
    }
    tables_.resize(tree.size());
    for (auto v = static_cast<int32_t>(tree.size()) - 1; v >= 0; --v) tables_[v] = TableOf(v, level[v]);
  }

  std::vector<int32_t> Trace() {
    const std::vector<Costs> parts = Parts(tops_, 0);
    // Fewest checkpoints among the cheapest.
    const auto best = std::min_element(parts.back().begin(), parts.back().end());
    TraceParts(tops_, 0, parts, static_cast<int32_t>(best - parts.back().begin()));
    while (!pending_.empty()) {
      const Pending next = pending_.back();
      pending_.pop_back();
      TraceNode(next);
    }
    std::sort(placed_.begin(), placed_.end());
    return placed_;
  }

 private:
  // Ancestors of v by level: 0 is the root, then from the top down to its parent.
  int32_t DepthAt(int32_t v, const int32_t level, const int32_t v_level) const {
    if (level == 0) return 0;
    for (int32_t l = v_level; l > level; --l) v = tree_[v].parent;
    return tree_[v].depth;
  }

  // Running convolutions of the children's tables at ancestor level `above`: parts[i] covers the first i children.
  std::vector<Costs> Parts(const std::vector<int32_t>& children, const int32_t above) const {
    std::vector<Costs> parts = {{0}};
    for (const int32_t child : children) parts.push_back(Convolve(parts.back(), tables_[child][above], places_));
    return parts;
  }

  Costs Sum(const std::vector<int32_t>& children, const int32_t above) const {
    Costs sum = {0};
    for (const int32_t child : children) sum = Convolve(sum, tables_[child][above], places_);
    return sum;
  }

  // v's table: one row per ancestor level 0..level-1. Children see v itself at `level`.
  std::vector<Costs> TableOf(const int32_t v, const int32_t level) const {
    const Costs placed = Sum(children_[v], level);
    std::vector<Costs> table;
    std::vector<int32_t> depths(level, 0);
    for (int32_t l = level - 1, a = tree_[v].parent; l > 0; --l, a = tree_[a].parent) depths[l] = tree_[a].depth;
    for (int32_t l = 0; l < level; ++l) {
      Costs row = Sum(children_[v], l);
      for (int64_t& cost : row) cost += tree_[v].weight * (tree_[v].depth - depths[l]);
      if (static_cast<int32_t>(row.size()) <= places_) row.push_back(INT64_MAX);
      for (size_t k = 1; k < row.size(); ++k) {
        row[k] = std::min(row[k], placed[std::min(k - 1, placed.size() - 1)]);
      }
      table.push_back(std::move(row));
    }
    return table;
  }

  struct Pending {
    int32_t v, level, above, places;
  };

  // Splits `places` over children by walking the running convolutions backwards.
  void TraceParts(const std::vector<int32_t>& children, const int32_t above, const std::vector<Costs>& parts,
                  int32_t places) {
    for (size_t i = children.size(); i > 0; --i) {
      const Costs& row = tables_[children[i - 1]][above];
      int32_t inside = 0;
      while (places - inside >= static_cast<int32_t>(parts[i - 1].size()) ||
             parts[i - 1][places - inside] + row[inside] != parts[i][places]) {
        ++inside;
      }
      const auto level = static_cast<int32_t>(tables_[children[i - 1]].size());
      pending_.push_back({children[i - 1], level, above, inside});
      places -= inside;
    }
  }

  void TraceNode(const Pending& at) {
    const TreeNode& node = tree_[at.v];
    const int64_t cost = tables_[at.v][at.above][at.places];
    const std::vector<Costs> skip = Parts(children_[at.v], at.above);
    const int64_t own = node.weight * (node.depth - DepthAt(at.v, at.above, at.level));
    if (at.places < static_cast<int32_t>(skip.back().size()) && skip.back()[at.places] + own == cost) {
      TraceParts(children_[at.v], at.above, skip, at.places);
      return;
    }
    placed_.push_back(at.v);
    const std::vector<Costs> below = Parts(children_[at.v], at.level);
    const int32_t left = std::min(at.places - 1, static_cast<int32_t>(below.back().size()) - 1);
    TraceParts(children_[at.v], at.level, below, left);
  }

  const TreeView tree_;
  const int32_t places_;
  std::vector<int32_t> tops_;
  std::vector<std::vector<int32_t>> children_;
  std::vector<std::vector<Costs>> tables_;  // [node][level of the nearest checkpoint above][checkpoints inside]
  std::vector<Pending> pending_;
  std::vector<int32_t> placed_;
};

}  // namespace

void CheckTree(const TreeView tree) {
  int64_t total = 0;
  int32_t deepest = 1;
  for (size_t v = 0; v < tree.size(); ++v) {
    const TreeNode& node = tree[v];
    Check(node.parent >= -1 && node.parent < static_cast<int64_t>(v), "parents come first", v, node.parent);
    Check(node.depth > (node.parent < 0 ? 0 : tree[node.parent].depth), "depths grow downwards", v, node.depth);
    Check(node.weight >= 0 && node.weight <= kCostMax - total, "weights are not negative and fit", v, node.weight);
    total += node.weight;
    deepest = std::max(deepest, node.depth);
  }
  Check(total <= kCostMax / deepest, "weight x depth fits in kCostMax", total, deepest);
}

int64_t TreeCost(const TreeView tree, const std::span<const int32_t> placed) {
  const std::vector<bool> marks = Marks(tree, placed);
  const std::vector<int32_t> above = DepthsAbove(tree, marks);
  int64_t cost = 0;
  for (size_t v = 0; v < tree.size(); ++v) cost += marks[v] ? 0 : tree[v].weight * (tree[v].depth - above[v]);
  return cost;
}

std::vector<int64_t> TreeMarginals(const TreeView tree, const std::span<const int32_t> placed) {
  const std::vector<bool> marks = Marks(tree, placed);
  const std::vector<int32_t> above = DepthsAbove(tree, marks);
  std::vector<int64_t> marginals(tree.size());
  std::vector<int64_t> uncovered(tree.size(), 0);  // Weight below v, v's own included once it is reached.
  for (auto v = static_cast<int32_t>(tree.size()) - 1; v >= 0; --v) {
    uncovered[v] += tree[v].weight;
    marginals[v] = uncovered[v] * (tree[v].depth - above[v]);
    if (tree[v].parent >= 0 && !marks[v]) uncovered[tree[v].parent] += uncovered[v];
  }
  return marginals;
}

std::vector<int32_t> PlaceOnTree(const TreeView tree, const int32_t places) {
  CheckTree(tree);
  Check(places >= 0, "places are not negative", places);
  return TreeDp(tree, places).Trace();
}

}  // namespace invar::cache
