// DuelDirectories: plays both eviction orders of a duel on directories (duel.h): caches of the same budget without
// memory behind them. Each request is replayed in both when it begins and when it ends, one sequence at a time, so what
// fits into the cache fits there. Threads: engine thread only.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>

#include "cache/cache_options.h"
#include "cache/checkpoint/planner.h"
#include "cache/evict/duel.h"
#include "cache/evict/eviction_order.h"
#include "cache/evict/orders.h"
#include "cache/flush.h"
#include "cache/prefix/prefix_cache.h"

namespace invar::cache {

class DuelDirectories {
 public:
  // `options`: of the cache that follows the winner.
  explicit DuelDirectories(const CacheOptions& options);

  // A request begins. Requires: it reads and writes. Effects: the first one makes the directories; begin with it when
  // the first unit has to go, since before there is nothing to decide.
  void PlayPrompt(const PrefixQuery& query, TimeNs now);
  // A sequence ends with `computed` tokens and leaves them.
  void PlayEnd(const Scope& scope, std::span<const TokenId> computed, CheckpointKind kind, TimeNs now);
  void Flush(const FlushOptions& what);
  void CheckIntegrity() const;

  // What to follow.
  const EvictionOrder& winner() const { return *orders_[score_.winner()]; }
  std::string_view winner_name() const { return kDuelOrders[score_.winner()]; }

 private:
  // Set at construction.
  const CacheOptions options_;
  const std::array<std::unique_ptr<EvictionOrder>, 2> orders_;

  InlinePlanExecutor executor_;  // Of directories, which plan nothing.
  std::array<std::unique_ptr<PrefixCache>, 2> directories_;
  DuelScore score_;
};

}  // namespace invar::cache
