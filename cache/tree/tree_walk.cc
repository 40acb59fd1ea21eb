// See tree_walk.h. First a flat copy of the tree with sums over subtrees, then from the roots down always the heaviest
// node that is next to what is shown: what is left out weighs less than anything beside it.
#include "cache/tree/tree_walk.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

namespace invar::cache {
namespace {

struct Flat {
  const Node* node = nullptr;
  int32_t parent = -1;
  int32_t tenant = 0;
  int32_t scope = 0;
  int64_t tokens_below = 0;
  int32_t shown = -1;  // Index in the report.
};

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

// Roots come in the order of their scopes, so those of one tenant stand together.
std::vector<Flat> Flatten(const RadixTree& tree, const TreeReportOptions& options, TreeReport& report) {
  std::vector<Flat> flat;
  std::unordered_map<const Node*, int32_t> index;  // Looked up only; its order reaches nothing.
  const Scope* last = nullptr;
  int32_t scopes = 0;
  tree.ForEach([&](const Scope& scope, Node& node) {
    if (options.tenant.has_value() && scope.tenant != *options.tenant) return;
    if (report.tenants.empty() || report.tenants.back().name != scope.tenant) {
      report.tenants.push_back({scope.tenant, {}});
    }
    if (last != &scope) {
      last = &scope;
      ++scopes;
      ++report.tenants.back().totals.scopes;
      ++report.all.scopes;
    }
    Count(node, report.all);
    Count(node, report.tenants.back().totals);
    const auto parent = index.find(node.parent);
    index.emplace(&node, static_cast<int32_t>(flat.size()));
    flat.push_back({.node = &node,
                    .parent = parent == index.end() ? -1 : parent->second,
                    .tenant = static_cast<int32_t>(report.tenants.size()) - 1,
                    .scope = scopes,
                    .tokens_below = KvTokens(node)});
  });
  for (auto entry = flat.rbegin(); entry != flat.rend(); ++entry) {
    if (entry->parent >= 0) flat[static_cast<size_t>(entry->parent)].tokens_below += entry->tokens_below;
  }
  return flat;
}

// Marks what is shown.
void Choose(std::vector<Flat>& flat, const int32_t nodes_max) {
  std::vector<std::vector<int32_t>> children(flat.size());
  // The heaviest first; of equal ones the one that comes first in the tree.
  std::priority_queue<std::pair<int64_t, int32_t>> open;
  for (int32_t i = 0; i < static_cast<int32_t>(flat.size()); ++i) {
    if (flat[i].parent < 0) {
      open.emplace(flat[i].tokens_below, -i);
    } else {
      children[flat[i].parent].push_back(i);
    }
  }
  for (int32_t shown = 0; shown < nodes_max && !open.empty(); ++shown) {
    const int32_t i = -open.top().second;
    open.pop();
    flat[i].shown = 0;
    for (const int32_t child : children[i]) open.emplace(flat[child].tokens_below, -child);
  }
}

}  // namespace

TreeReport ReportTree(const RadixTree& tree, const TreeReportOptions& options, const TimeNs now) {
  TreeReport report;
  std::vector<Flat> flat = Flatten(tree, options, report);
  Choose(flat, options.nodes_max);
  for (Flat& entry : flat) {
    if (entry.shown < 0) continue;
    const Node& node = *entry.node;
    entry.shown = static_cast<int32_t>(report.nodes.size());
    TreeNodeReport shown{.parent = entry.parent < 0 ? -1 : flat[entry.parent].shown,
                         .tenant = entry.tenant,
                         .scope = entry.scope,
                         .begin = node.begin,
                         .end = node.end,
                         .has_kv = node.has_kv(),
                         .checkpoint = std::nullopt,
                         .origin = OriginName(node.use.origin),
                         .hits = node.use.hits,
                         .idle_ns = std::max<TimeNs>(0, now - node.use.used_at),
                         .tokens_below = entry.tokens_below,
                         .children_left_out = static_cast<int32_t>(node.children.size())};
    if (node.checkpoint.has_value()) shown.checkpoint = node.checkpoint->kind;
    if (shown.parent >= 0) --report.nodes[shown.parent].children_left_out;
    report.nodes.push_back(shown);
  }
  return report;
}

std::string_view CheckpointKindName(const CheckpointKind kind) {
  static constexpr std::string_view kNames[kCheckpointKinds] = {"prompt_end", "end",     "branch",
                                                                "hint",       "planned", "preempted"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace invar::cache
