// See the header for the recursion. A function owns its map; merging moves the smaller map into the larger.
#include "cache/checkpoint/tree_lagrangian.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "cache/checkpoint/demand.h"

namespace invar::cache {
namespace {

// A concave falling function on 0..right. Invariant: keys of jumps_ lie strictly between 0 and right, every jump is
// negative, and the first slope plus all jumps is the last slope.
class Falling {
 public:
  int64_t at_right() const { return right_value_; }

  // The zero function on 0..right.
  explicit Falling(const int32_t right) : right_(right) {}

  // Forgets what lies right of `right`. Requires: right is not beyond the end.
  void CutTo(const int32_t right) {
    while (!jumps_.empty() && jumps_.rbegin()->first >= right) {
      const auto last = std::prev(jumps_.end());
      right_value_ -= last_slope_ * (right_ - last->first);
      last_slope_ -= last->second;
      right_ = last->first;
      jumps_.erase(last);
    }
    right_value_ -= last_slope_ * (right_ - right);
    right_ = right;
  }

  // Requires: the same end.
  void Add(Falling&& other) {
    if (jumps_.size() < other.jumps_.size()) std::swap(jumps_, other.jumps_);
    for (const auto& [x, jump] : other.jumps_) jumps_[x] += jump;
    left_value_ += other.left_value_;
    right_value_ += other.right_value_;
    first_slope_ += other.first_slope_;
    last_slope_ += other.last_slope_;
  }

  // Adds weight x (right - x).
  void AddRamp(const int64_t weight) {
    left_value_ += weight * right_;
    first_slope_ -= weight;
    last_slope_ -= weight;
  }

  // Takes min(cap, .). Gives the largest integer x where the function was above the cap, or -1.
  int32_t CapAt(const int64_t cap) {
    if (left_value_ <= cap) return -1;
    int32_t x = 0;
    int64_t value = left_value_;
    int64_t slope = first_slope_;
    for (;;) {
      const auto next = jumps_.begin();
      const int32_t end = next == jumps_.end() ? right_ : next->first;
      const int64_t end_value = value + slope * (end - x);
      if (end_value <= cap) break;
      Check(next != jumps_.end(), "the function falls to the cap or below");
      slope += next->second;
      value = end_value;
      x = end;
      jumps_.erase(next);
    }
    const auto above = static_cast<int32_t>(x + (value - cap - 1) / -slope);
    const int64_t step = value + slope * (above + 1 - x) - cap;  // From the cap at `above` down to the function.
    left_value_ = cap;
    if (above == 0) {
      first_slope_ = step;
    } else {
      first_slope_ = 0;
      if (step < 0) jumps_[above] = step;
    }
    if (above + 1 == right_) {
      last_slope_ = step;
    } else if (slope != step) {
      jumps_[above + 1] += slope - step;
    }
    return above;
  }

 private:
  int32_t right_;
  int64_t left_value_ = 0;
  int64_t right_value_ = 0;
  int64_t first_slope_ = 0;
  int64_t last_slope_ = 0;
  std::map<int32_t, int64_t> jumps_;  // Change of slope at x.
};

// Checkpoints placed at each node the price pays for, as marks turned into indices.
std::vector<int32_t> Indices(const std::vector<bool>& marks) {
  std::vector<int32_t> out;
  for (size_t v = 0; v < marks.size(); ++v) {
    if (marks[v]) out.push_back(static_cast<int32_t>(v));
  }
  return out;
}

// Gives free places to the largest gains, one after another; equal gains go to the smaller index.
void Fill(const TreeView tree, std::vector<int32_t>& placed, const int32_t places) {
  while (static_cast<int32_t>(placed.size()) < places) {
    std::vector<int64_t> gains = TreeMarginals(tree, placed);
    for (const int32_t v : placed) gains[v] = 0;
    const auto best = std::max_element(gains.begin(), gains.end());
    if (best == gains.end() || *best <= 0) return;
    const auto v = static_cast<int32_t>(best - gains.begin());
    placed.insert(std::lower_bound(placed.begin(), placed.end(), v), v);
  }
}

// Takes the smallest losses away, one after another; equal losses leave from the larger index.
void Drop(const TreeView tree, std::vector<int32_t>& placed, const int32_t places) {
  while (static_cast<int32_t>(placed.size()) > places) {
    const std::vector<int64_t> losses = TreeMarginals(tree, placed);
    auto least = placed.begin();
    for (auto v = placed.begin(); v != placed.end(); ++v) {
      if (losses[*v] <= losses[*least]) least = v;
    }
    placed.erase(least);
  }
}

}  // namespace

std::vector<int32_t> PlaceOnTreeAtPrice(const TreeView tree, const int64_t price) {
  CheckTree(tree);
  Check(price >= 0 && price <= kCostMax, "a price within kCostMax", price);
  std::vector<Falling> functions;
  functions.reserve(tree.size());
  for (const TreeNode& node : tree) functions.emplace_back(node.depth);
  std::vector<int32_t> pays_up_to(tree.size());
  for (auto v = static_cast<int32_t>(tree.size()) - 1; v >= 0; --v) {
    Falling& g = functions[v];  // Its children, having larger indices, are in it.
    g.AddRamp(tree[v].weight);
    pays_up_to[v] = g.CapAt(price + g.at_right());
    if (tree[v].parent < 0) continue;
    g.CutTo(tree[tree[v].parent].depth);
    functions[tree[v].parent].Add(std::move(g));
  }
  std::vector<bool> marks(tree.size(), false);
  std::vector<int32_t> nearest(tree.size(), 0);  // Depth of the nearest checkpoint at or above.
  for (size_t v = 0; v < tree.size(); ++v) {
    const int32_t above = tree[v].parent < 0 ? 0 : nearest[tree[v].parent];
    marks[v] = above <= pays_up_to[v];
    nearest[v] = marks[v] ? tree[v].depth : above;
  }
  return Indices(marks);
}

TreeBudgetPlan PlaceOnTreeWithin(const TreeView tree, const int32_t places) {
  Check(places >= 0, "places are not negative", places);
  TreeBudgetPlan plan{.nodes = PlaceOnTreeAtPrice(tree, 0), .price = 0};
  const auto fits = [&](const std::vector<int32_t>& nodes) { return static_cast<int32_t>(nodes.size()) <= places; };
  if (fits(plan.nodes)) return plan;
  // At the price of everything nothing is worth placing. Invariant: `low` does not fit, `high` fits.
  int64_t low = 0;
  int64_t high = TreeCost(tree, {});
  std::vector<int32_t> too_many = std::move(plan.nodes);
  std::vector<int32_t> fitting;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    std::vector<int32_t> nodes = PlaceOnTreeAtPrice(tree, middle);
    (fits(nodes) ? high : low) = middle;
    (fits(nodes) ? fitting : too_many) = std::move(nodes);
  }
  Fill(tree, fitting, places);
  Drop(tree, too_many, places);
  plan.price = high;
  plan.nodes = TreeCost(tree, fitting) <= TreeCost(tree, too_many) ? std::move(fitting) : std::move(too_many);
  return plan;
}

}  // namespace invar::cache
