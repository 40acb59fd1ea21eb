// PrefixLease: the memory of one running sequence and its share of the cache. Dropping it gives everything back; what
// of it is worth keeping is handed in before by CacheManager::Release.
// Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "cache/page_table.h"
#include "cache/prefix_entry.h"
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
  // For when it goes on after a preemption.
  const PrefixEntry& entry() const { return entry_; }
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
  PrefixEntry entry_;
  size_t next_place_ = 0;            // Of the entry's: those before were passed.
  int32_t published_ = 0;            // Tokens the tree was told of.
  std::vector<Emission> emissions_;  // Of the span under way.
};

}  // namespace invar::cache
