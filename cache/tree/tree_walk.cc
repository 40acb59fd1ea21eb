// See tree_walk.h. First copies of all nodes in their order, then sums over subtrees, then from the roots down always
// the heaviest node that is next to what is shown: what is left out weighs less than anything beside it.
#include "cache/tree_walk.h"

#include <algorithm>
#include <queue>
#include <span>
#include <utility>

#include "base/check.h"
#include "cache/tree/radix_tree.h"

namespace invar::cache {
namespace {

constexpr std::string_view NameOf(const CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kPromptEnd:
      return "prompt_end";
    case CheckpointKind::kEnd:
      return "end";
    case CheckpointKind::kBranch:
      return "branch";
    case CheckpointKind::kHint:
      return "hint";
    case CheckpointKind::kPlanned:
      return "planned";
    case CheckpointKind::kPreempted:
      return "preempted";
    case CheckpointKind::kBrought:
      return "brought";
  }
  return {};
}
// With a switch over all values, which the compiler checks, the count is the enum's.
static_assert(!NameOf(CheckpointKind{kCheckpointKinds - 1}).empty() &&
              NameOf(CheckpointKind{kCheckpointKinds}).empty());

std::string_view OriginName(const UseOrigin origin) {
  static constexpr std::string_view kNames[kUseOrigins] = {"", "end", "branch", "planned"};
  return kNames[static_cast<size_t>(origin)];
}

int64_t KvTokens(const Node& node) { return node.has_kv() ? node.end - node.begin : 0; }

void Count(const Node& node, TreeTotals& totals) {
  ++totals.nodes;
  totals.kv_tokens += KvTokens(node);
  totals.hits += node.use.hits;
  if (node.checkpoint.has_value()) ++totals.checkpoints[static_cast<size_t>(node.checkpoint->kind)];
}

std::vector<TokenId> TokensTo(const Node& node) {
  std::vector<const Node*> path;
  for (const Node* n = &node; !n->is_root(); n = n->parent) path.push_back(n);
  std::vector<TokenId> tokens;
  for (auto n = path.rbegin(); n != path.rend(); ++n) {
    tokens.insert(tokens.end(), (*n)->tokens.begin(), (*n)->tokens.end());
  }
  return tokens;
}

// The child that `rest` leads through, below which the walk goes on; or the first that comes after.
struct Onward {
  size_t child = 0;
  bool is_visited = false;
};
Onward FindOnward(const Node& node, const std::span<const TokenId> rest) {
  const auto at =
      std::lower_bound(node.children.begin(), node.children.end(), rest.front(),
                       [](const auto& child, const TokenId first) { return child->tokens.front() < first; });
  const auto child = static_cast<size_t>(at - node.children.begin());
  if (at == node.children.end() || (*at)->tokens.front() != rest.front()) return {child, false};
  const std::vector<TokenId>& tokens = (*at)->tokens;
  const bool is_visited = std::mismatch(tokens.begin(), tokens.end(), rest.begin(), rest.end()).first == tokens.end();
  // One that parts from the way in its middle came after the walk: else the two would have a node to part at.
  return {is_visited ? child : child + 1, is_visited};
}

}  // namespace

// From the root to the last node that was visited, or to what is left of the way there; and brings path_ up to it.
std::vector<TreeWalk::Frame> TreeWalk::FindAgain(const RadixTree& tree) {
  std::vector<Frame> stack;
  const Node* const root = scope_.has_value() ? tree.FirstRoot(*scope_, /*is_after=*/false) : nullptr;
  if (root == nullptr || *root->scope != *scope_) {
    path_.clear();
    return stack;
  }
  const std::vector<Place> known = std::exchange(path_, {});
  auto above = known.begin();
  int32_t nearest = -1;
  for (stack.push_back({root, 0});;) {
    const Node& node = *stack.back().node;
    const std::span<const TokenId> rest = std::span(prefix_).subspan(static_cast<size_t>(node.end));
    if (rest.empty()) break;
    const Onward onward = FindOnward(node, rest);
    stack.back().next_child = onward.child + (onward.is_visited ? 1 : 0);
    if (!onward.is_visited) break;
    const Node& child = *node.children[onward.child];
    for (; above != known.end() && above->end <= child.end; ++above) nearest = above->visited;
    path_.push_back({child.end, nearest});
    stack.push_back({&child, 0});
  }
  return stack;
}

// Null: none that is wanted.
const Node* TreeWalk::NextRoot(const RadixTree& tree) const {
  const Scope from{.tenant = options_.tenant.value_or(""), .salt = {}, .provenance = {}};
  const Node* const root = tree.FirstRoot(scope_.value_or(from), scope_.has_value());
  const bool is_wanted = root != nullptr && (!options_.tenant.has_value() || root->scope->tenant == *options_.tenant);
  return is_wanted ? root : nullptr;
}

// Roots come in the order of their scopes, so those of one tenant stand together.
void TreeWalk::Visit(const Node& node) {
  if (report_.tenants.empty() || report_.tenants.back().name != scope_->tenant) {
    report_.tenants.push_back({scope_->tenant, {}});
  }
  TreeTotals& totals = report_.tenants.back().totals;
  if (!std::exchange(scope_is_counted_, true)) {
    ++totals.scopes;
    ++report_.all.scopes;
  }
  Count(node, report_.all);
  Count(node, totals);
  Visited visited{.node = {.parent = path_.empty() ? -1 : path_.back().visited,
                           .tenant = static_cast<int32_t>(report_.tenants.size()) - 1,
                           .scope = static_cast<int32_t>(totals.scopes),
                           .begin = node.begin,
                           .end = node.end,
                           .has_kv = node.has_kv(),
                           .origin = OriginName(node.use.origin),
                           .hits = node.use.hits,
                           .tokens_below = KvTokens(node)},
                  .used_at = node.use.used_at};
  if (node.checkpoint.has_value()) visited.node.checkpoint = node.checkpoint->kind;
  path_.push_back({node.end, static_cast<int32_t>(visited_.size())});
  visited_.push_back(visited);
}

void TreeWalk::Continue(const RadixTree& tree, const int32_t nodes_max) {
  // At once and with room for what comes meanwhile: growing it moves all, which takes longer than a part.
  if (visited_.empty()) visited_.reserve(static_cast<size_t>(tree.node_count() + tree.node_count() / 8 + nodes_max));
  std::vector<Frame> stack = FindAgain(tree);
  const Node* last = nullptr;
  for (int32_t left = nodes_max; left > 0 && !is_done_;) {
    if (stack.empty()) {
      const Node* const root = NextRoot(tree);
      is_done_ = root == nullptr;
      if (is_done_) break;
      scope_ = *root->scope;
      prefix_.clear();
      last = nullptr;
      scope_is_counted_ = false;
      stack.push_back({root, 0});
      --left;
      continue;
    }
    Frame& top = stack.back();
    if (top.next_child == top.node->children.size()) {
      stack.pop_back();
      if (!path_.empty()) path_.pop_back();
      continue;
    }
    last = top.node->children[top.next_child++].get();
    Visit(*last);
    stack.push_back({last, 0});
    --left;
  }
  if (last != nullptr) prefix_ = TokensTo(*last);
}

// Marks what is shown.
void TreeWalk::Choose() {
  if (options_.nodes_max == 0) return;
  // Children of a node as a list: the first, and each one's next.
  std::vector<int32_t> first(visited_.size(), -1);
  std::vector<int32_t> next(visited_.size(), -1);
  // The heaviest first; of equal ones the one that comes first in the tree.
  std::priority_queue<std::pair<int64_t, int32_t>> open;
  for (auto i = static_cast<int32_t>(visited_.size()) - 1; i >= 0; --i) {
    const TreeNodeReport& node = visited_[i].node;
    if (node.parent < 0) {
      open.emplace(node.tokens_below, -i);
    } else {
      next[i] = std::exchange(first[node.parent], i);
    }
  }
  for (int32_t shown = 0; shown < options_.nodes_max && !open.empty(); ++shown) {
    const int32_t i = -open.top().second;
    open.pop();
    visited_[i].is_shown = true;
    for (int32_t child = first[i]; child >= 0; child = next[child]) {
      open.emplace(visited_[child].node.tokens_below, -child);
    }
  }
}

TreeReport TreeWalk::Report(const TimeNs now) {
  Check(is_done_, "the walk has come to its end");
  for (auto entry = visited_.rbegin(); entry != visited_.rend(); ++entry) {
    if (entry->node.parent < 0) continue;
    TreeNodeReport& parent = visited_[entry->node.parent].node;
    parent.tokens_below += entry->node.tokens_below;
    ++parent.children_left_out;
  }
  Choose();
  std::vector<int32_t> shown_at(visited_.size(), -1);
  for (size_t i = 0; i < visited_.size(); ++i) {
    if (!visited_[i].is_shown) continue;
    shown_at[i] = static_cast<int32_t>(report_.nodes.size());
    TreeNodeReport shown = visited_[i].node;
    shown.idle_ns = std::max<TimeNs>(0, now - visited_[i].used_at);
    if (shown.parent >= 0) {
      shown.parent = shown_at[shown.parent];
      --report_.nodes[shown.parent].children_left_out;
    }
    report_.nodes.push_back(shown);
  }
  return std::move(report_);
}

std::string_view CheckpointKindName(const CheckpointKind kind) { return NameOf(kind); }

}  // namespace invar::cache
