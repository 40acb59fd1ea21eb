// TreeWalk: a TreeReport in the making, some nodes at a time, so that looking at a large tree holds up no step. Between
// two parts the tree may change in any way: the walk keeps copies, and the place it has come to by its tokens, never a
// pointer. What stays through the whole walk is in the report; of what came or went meanwhile there may be some.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/scope.h"
#include "cache/tree_report.h"

namespace invar::cache {

class RadixTree;
struct Node;

// Threads: one at a time.
class TreeWalk {
 public:
  // At most some 3 ms: of 100,000 nodes each costs 0.2 to 1.3 us, by what of it is in the CPU's caches (tree_bench).
  static constexpr int32_t kNodesAtOnce = 2048;

  explicit TreeWalk(TreeReportOptions options) : options_(std::move(options)) {}

  // Goes on by at most about `nodes_max`, in the order of the tree: parents before children. Threads: engine thread.
  void Continue(const RadixTree& tree, int32_t nodes_max);
  bool is_done() const { return is_done_; }
  // Requires: is_done(). Cost: about 20 ns a node. Once.
  TreeReport Report(TimeNs now);

 private:
  struct Visited {
    TreeNodeReport node;  // `tokens_below` without those below.
    TimeNs used_at = 0;
    bool is_shown = false;
  };
  // A node on the way to where the walk is.
  struct Place {
    int32_t end = 0;      // Of the node's positions.
    int32_t visited = 0;  // Index of it, or of the nearest above it that was there when the walk came by.
  };
  struct Frame {
    const Node* node = nullptr;
    size_t next_child = 0;
  };

  std::vector<Frame> FindAgain(const RadixTree& tree);
  const Node* NextRoot(const RadixTree& tree) const;
  void Visit(const Node& node);
  void Choose();

  const TreeReportOptions options_;
  bool is_done_ = false;

  // Where it is: in the tree of this scope, right after the node that `prefix_` leads to; none: before all trees.
  std::optional<Scope> scope_;
  std::vector<TokenId> prefix_;
  std::vector<Place> path_;
  bool scope_is_counted_ = false;

  std::vector<Visited> visited_;
  TreeReport report_;
};

}  // namespace invar::cache
