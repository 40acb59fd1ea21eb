// PrefixLease: the memory of one running sequence and its share of the cache. Dropping it gives everything back; what
// of it is worth keeping is handed in before by CacheManager::Release.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "cache/page_table.h"
#include "cache/prefix_match.h"
#include "cache/scope.h"
#include "cache/slot_pool.h"

namespace invar::cache {

// A state to be copied out of a span while it runs: after `after` tokens, to slot `to`.
struct StateEmission {
  int32_t after = 0;
  SlotId to;
};

class PrefixLease {
 public:
  const PageTable& pages() const { return pages_; }
  SlotId slot() const { return slot_.id(); }
  // What the sequence found when it began.
  const PrefixMatch& match() const { return match_; }
  const Scope& scope() const { return scope_; }
  // Whether it leaves something in the cache, and whether it did before pages were given up.
  bool publishes() const { return publishes_; }
  bool published_before_parting() const { return published_before_parting_; }

 private:
  friend class PrefixCache;
  struct Emission {
    int32_t at = 0;
    CheckpointKind kind;
    SlotRef state;
  };
  PrefixLease(Scope scope, SlotRef slot) : scope_(std::move(scope)), slot_(std::move(slot)) {}

  Scope scope_;
  bool publishes_ = true;
  bool published_before_parting_ = false;  // What publishes_ was before pages were given up.
  int32_t parted_ = 0;                     // Pages given up, from the first on.
  PrefixMatch match_;
  PageTable pages_;
  SlotRef slot_;
  // Where in its tokens it is met or meets others, for the demand of nodes; 0: nowhere, or counted already.
  int32_t met_at_ = 0;                   // The end of what was there before.
  int32_t stable_at_ = 0;                // What follow-ups repeat of the prompt.
  int32_t private_from_ = 0;             // What it brings begins here, for the planner.
  int32_t turns_ = 0;                    // How many requests in a row it follows up.
  int32_t published_ = 0;                // Tokens the tree was told of.
  std::vector<CheckpointPlace> places_;  // Where checkpoints are wanted and the state has not been yet; ascending.
  std::vector<Emission> emissions_;      // Of the span under way.
};

}  // namespace invar::cache
