// A pass: dead KV, then units in order until what is asked for fits and a little more (so that the next need does not
// cost a pass again).
#include "cache/evict/evictor.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/check.h"

namespace invar::cache {
namespace {

using kernels::kPageTokens;

// The share of the budget a pass frees beyond what is asked for: a pass walks the whole tree.
constexpr int64_t kSlackDivisor = 128;

bool IsLive(const CacheMemory& memory, const Node& node) {
  return std::any_of(node.pages.begin(), node.pages.end(),
                     [&](const PageRef& page) { return memory.pages().LiveClaims(page.id()) > 0; });
}

// The end of the positions of `node` that some sequence holds: a leaf can be cut down to it.
int32_t LiveEnd(const CacheMemory& memory, const Node& node) {
  for (size_t p = node.pages.size(); p-- > 0;) {
    if (memory.pages().LiveClaims(node.pages[p].id()) == 0) continue;
    return std::min(node.end, (node.first_page() + static_cast<int32_t>(p) + 1) * kPageTokens);
  }
  return node.begin;
}

// All nodes, children before parents.
std::vector<Node*> BottomUp(const RadixTree& tree) {
  std::vector<Node*> nodes;
  tree.ForEach([&](const Scope&, Node& node) { nodes.push_back(&node); });
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

}  // namespace

bool Evictor::MakeRoom(const int64_t bytes, const TimeNs now) {
  if (Fits(bytes)) return true;
  ++counts_.passes;
  const int64_t wanted = bytes + memory_.budget_bytes() / kSlackDivisor;
  if (has_state_) DropDeadKv();
  // Each round's units are those no other depends on; evicting them makes new ones.
  while (!Fits(bytes)) {
    std::vector<EvictionUnit> units = Units();
    if (units.empty()) return false;
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < units.size(); ++i) order.emplace_back(order_.Value(units[i], now), i);
    std::sort(order.begin(), order.end());
    for (const auto& [value, i] : order) {
      if (Fits(wanted)) break;
      listener_.Evicting(*units[i].node, now);
      Evict(units[i], wanted);
    }
  }
  tree_.DropEmptyRoots();
  return true;
}

// A leaf without a checkpoint serves nobody: the state could not follow.
void Evictor::DropDeadKv() {
  for (Node* const node : BottomUp(tree_)) {
    if (!node->is_leaf() || node->checkpoint.has_value()) continue;
    const int32_t live_end = LiveEnd(memory_, *node);
    if (live_end == node->end) continue;
    counts_.pages += static_cast<int64_t>(node->pages.size());
    tree_.Shorten(*node, live_end);
  }
}

int64_t Evictor::DeadKvBytes() const {
  if (!has_state_) return 0;
  std::unordered_map<const Node*, bool> usable;
  std::unordered_set<PageId> counted;
  for (Node* const node : BottomUp(tree_)) {
    bool& self = usable[node];
    self = self || node->checkpoint.has_value();
    if (self) {
      usable[node->parent] = true;
      for (const PageRef& page : node->pages) counted.insert(page.id());
    }
  }
  int64_t dead = 0;
  for (Node* const node : BottomUp(tree_)) {
    for (const PageRef& page : node->pages) {
      if (memory_.pages().LiveClaims(page.id()) > 0 || !counted.insert(page.id()).second) continue;
      dead += memory_.pages().block_bytes();
    }
  }
  return dead;
}

std::vector<EvictionUnit> Evictor::Units() const {
  struct Below {
    int32_t hits = 0;  // Of the subtree, as far as no deeper checkpoint takes them.
    TimeNs used_at = 0;
    bool checkpoint = false;
  };
  std::unordered_map<const Node*, Below> below;
  std::vector<EvictionUnit> units;
  for (Node* const node : BottomUp(tree_)) {
    Below own = below[node];
    own.hits += node->use.hits;
    own.used_at = std::max(own.used_at, node->use.used_at);
    const bool has_unit = has_state_ ? node->checkpoint.has_value() : node->is_leaf();
    const bool free = has_state_ ? has_unit && memory_.slots().LiveClaims(node->checkpoint->state.id()) == 0
                                 : LiveEnd(memory_, *node) < node->end;
    if (has_unit && free) {
      EvictionUnit unit{.node = node, .hits = own.hits, .used_at = own.used_at};
      if (has_state_) unit.bytes = memory_.slots().block_bytes();
      const Node* above = node;
      if (!own.checkpoint) {
        // Nothing deeper needs this KV, up to the next checkpoint or branch.
        do {
          if (!IsLive(memory_, *above))
            unit.bytes += static_cast<int64_t>(above->pages.size()) * memory_.pages().block_bytes();
          above = above->parent;
        } while (has_state_ && !above->is_root() && !above->checkpoint.has_value() && above->children.size() == 1);
      } else {
        above = node->parent;
      }
      while (!above->is_root() && !above->checkpoint.has_value()) above = above->parent;
      unit.recompute = node->end - above->end;
      units.push_back(unit);
    }
    if (node->checkpoint.has_value()) own.hits = 0;
    Below& parent = below[node->parent];
    parent.hits += own.hits;
    parent.used_at = std::max(parent.used_at, own.used_at);
    parent.checkpoint = parent.checkpoint || own.checkpoint || node->checkpoint.has_value();
  }
  return units;
}

void Evictor::Evict(const EvictionUnit& unit, const int64_t bytes) {
  Node* node = unit.node;
  if (has_state_) {
    node->checkpoint.reset();
    ++counts_.checkpoints;
  }
  // The KV upward that now leads to nothing. Of a dense model's leaf only as many pages as are asked for.
  while (!node->is_root() && node->is_leaf() && !node->checkpoint.has_value()) {
    int32_t end = LiveEnd(memory_, *node);
    if (!has_state_) {
      const int64_t excess = memory_.used_bytes() + bytes - memory_.budget_bytes();
      const int64_t pages =
          (excess + memory_.pages().block_bytes() - 1) / std::max<int64_t>(1, memory_.pages().block_bytes());
      end = static_cast<int32_t>(
          std::max<int64_t>(end, (int64_t{node->end - 1} / kPageTokens - pages + 1) * kPageTokens));
      end = std::max(end, node->begin);
    }
    if (end >= node->end) return;
    counts_.pages += (node->end + kPageTokens - 1) / kPageTokens - (end + kPageTokens - 1) / kPageTokens;
    Node* const parent = node->parent;
    const bool whole = end == node->begin;
    tree_.Shorten(*node, end);
    if (!whole || !has_state_) return;
    node = parent;
  }
}

}  // namespace invar::cache
