// PrefixCache: what running sequences hold and what of it others can use, in memory, under one budget: the tree of
// prefixes, the blocks behind it, where checkpoints are made and what goes when a block does not fit. It knows one
// eviction order at a time and no tier: duel and tiers stand around it (cache_manager.h), which also says what the
// lease calls mean. Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/cache_memory.h"
#include "cache/cache_options.h"
#include "cache/checkpoint/placer.h"
#include "cache/evict/demand_model.h"
#include "cache/evict/eviction_order.h"
#include "cache/evict/evictor.h"
#include "cache/flush.h"
#include "cache/lease.h"
#include "cache/placement_report.h"
#include "cache/plan_report.h"
#include "cache/prefix/resume.h"
#include "cache/prefix_image.h"
#include "cache/prefix_query.h"
#include "cache/tree/radix_tree.h"
#include "cache/tree_walk.h"

namespace invar::cache {

class PrefixCache {
 public:
  // `options`: all of them but those of duel and tiers. `listener`: told of what goes; may be null.
  // Requires: the others outlive this.
  PrefixCache(const CacheOptions& options, const EvictionOrder& order, PlanExecutor& executor,
              EvictionListener* listener);

  int32_t LiveSharedPages(const PrefixQuery& query) const;
  PrefixLease Acquire(const PrefixQuery& query, TimeNs now);
  void Extend(PrefixLease& lease, int32_t end, TimeNs now);
  void Emit(PrefixLease& lease, int32_t first, int32_t end, TimeNs now, std::vector<StateEmission>& out);
  void Commit(PrefixLease& lease, std::span<const TokenId> computed, TimeNs now);
  void GiveUpPages(PrefixLease& lease, std::span<const TokenId> computed, int32_t pages, TimeNs now);
  std::vector<PageRef> TakePages(int32_t count, TimeNs now);
  void TakeBackPages(PrefixLease& lease, std::vector<PageRef> pages);
  ByteClaim Reserve(int64_t bytes, TimeNs now);
  void Release(PrefixLease lease, std::span<const TokenId> computed, CheckpointKind kind, TimeNs now);
  FlushReport Flush(const FlushOptions& what);

  // What goes first from now on. Requires: `order` outlives this.
  void Follow(const EvictionOrder& order) { order_ = &order; }

  // What Acquire would find; changes nothing.
  PrefixMatch Lookup(const PrefixQuery& query) const;
  // The steps of Acquire with their reasons, without their effects.
  PlanReport Explain(const PrefixQuery& query);
  void Continue(TreeWalk& walk, const int32_t nodes_max) const { walk.Continue(tree_, nodes_max); }
  // What something else kept of `tokens`, of which there are at least image.end: into memory that is free or only
  // cached. Where that does not suffice, or what the pages hang on has gone meanwhile, nothing is kept: false.
  bool Adopt(const Scope& scope, std::span<const TokenId> tokens, const PrefixImage& image, TimeNs now);
  std::optional<PrefixImage> CopyCached(const PrefixQuery& query, int32_t first_page, TimeNs now);
  // Where sequences can resume: nodes with a checkpoint, of dense models leaves; the most recently used first.
  std::vector<Node*> ResumableNodes() const;

  bool has_evicted() const { return evictor_.counts().passes > 0; }
  const CacheMemory& memory() const { return memory_; }
  // Without what duel and tiers add.
  PlacementReport Report() const;
  int64_t DeadKvBytes() const { return evictor_.DeadKvBytes(); }
  void CheckIntegrity() const;

 private:
  bool MakeRoom(const int64_t bytes, const TimeNs now) { return evictor_.MakeRoom(bytes, *order_, now); }
  bool LeavesCheckpoints(const PrefixQuery& query) const {
    return has_state_ && query.write && placer_.traits().keeps_kv;
  }
  // What a checkpoint must save to be worth its memory, by what was evicted of late.
  double PriceTokens() const { return evictor_.price_per_byte() * static_cast<double>(shape_.state_bytes); }
  PageTable SharePages(Match& found, TimeNs now);
  void MeetPlanned(Node& node, TimeNs now);
  void KeepCopies(PrefixLease& lease, TimeNs now);
  PageRef TakePage(TimeNs now);
  SlotRef SlotWith(const ResumePoint& point, TimeNs now);
  void Publish(PrefixLease& lease, std::span<const TokenId> tokens, TimeNs now);
  static void UsePagesOfTheTree(PrefixLease& lease, const Node& end);
  Node* Keep(const PrefixLease& lease, std::span<const TokenId> tokens, int32_t at, CheckpointKind kind, SlotRef state,
             TimeNs now);

  // Set at construction.
  const StateShape shape_;
  const bool has_state_;
  const int64_t probation_bytes_;

  CacheMemory memory_;
  RadixTree tree_;  // After the memory: nodes give blocks back.
  CheckpointPlacer placer_;
  DemandModel demand_;
  Evictor evictor_;
  const EvictionOrder* order_;
  PlacementReport report_;  // The counters of it.
};

}  // namespace invar::cache
