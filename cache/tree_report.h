// The shape of the prefix tree for people: totals by tenant, and a bounded picture of its heaviest part. Sizes, depths
// and uses only: no token and no salt is in it. Threads: any; values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cache/prefix_match.h"

namespace invar::cache {

// A set of nodes.
struct TreeTotals {
  int64_t scopes = 0;  // Trees: tenants times salts.
  int64_t nodes = 0;
  int64_t kv_tokens = 0;                                   // Positions whose KV is there.
  int64_t hits = 0;                                        // Requests whose match ended at a node that is still there.
  std::array<int64_t, kCheckpointKinds> checkpoints = {};  // By CheckpointKind.
};

struct TreeNodeReport {
  int32_t parent = -1;  // Index into TreeReport::nodes; -1: hangs on a root.
  int32_t tenant = 0;   // Index into TreeReport::tenants.
  int32_t scope = 0;  // Number of its tree among those of its tenant, from 1 on: tells salts apart without naming them.
  int32_t begin = 0;  // Positions [begin, end).
  int32_t end = 0;
  bool has_kv = false;
  std::optional<CheckpointKind> checkpoint = {};  // Of the state after `end` tokens.
  std::string_view origin = {};                   // Why requests are expected here: "", "end", "branch", "planned".
  int32_t hits = 0;
  TimeNs idle_ns = 0;        // Since it was last made, hit or passed.
  int64_t tokens_below = 0;  // With KV, its own included.
  int32_t children_left_out = 0;
};

struct TreeReport {
  struct Tenant {
    std::string name;
    TreeTotals totals;
  };
  TreeTotals all;
  std::vector<Tenant> tenants;        // By name.
  std::vector<TreeNodeReport> nodes;  // Parents before children; the heaviest subtrees, at most nodes_max.
};

struct TreeReportOptions {
  std::optional<std::string> tenant = std::nullopt;  // None: all.
  int32_t nodes_max = 0;
};

// "prompt_end", "end", "branch", "hint", "planned", "preempted": as in metrics.
std::string_view CheckpointKindName(CheckpointKind kind);

}  // namespace invar::cache
