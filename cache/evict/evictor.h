// Evictor: frees cached memory, least valuable unit first, KV that no checkpoint makes usable before all units.
// A unit is a checkpoint with the KV that only it makes usable: of a leaf all KV up to the next checkpoint or branch,
// of an inner node the checkpoint alone. Source of the unit: Shirokikh and Nikolenko, "Sparse prefix caching for hybrid
// and recurrent LLM serving" (arXiv 2605.05219); docs/PREFIX_CACHE.md says how Invar values it.
// Threads: engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>

#include "cache/cache_memory.h"
#include "cache/evict/demand_model.h"
#include "cache/evict/eviction_order.h"
#include "cache/prefix_match.h"
#include "cache/tree/radix_tree.h"

namespace invar::cache {

// Told of every unit before it goes, while its memory is still there.
class EvictionListener {
 public:
  virtual ~EvictionListener() = default;
  virtual void Evicting(Node& node, TimeNs now) = 0;
};

struct EvictionCounts {
  std::array<int64_t, kCheckpointKinds> checkpoints = {};  // By CheckpointKind.
  int64_t pages = 0;
  int64_t passes = 0;
};

class Evictor {
 public:
  // `listener`: may be null. `has_state`: checkpoints decide what is usable. Requires: all outlive this.
  Evictor(RadixTree& tree, CacheMemory& memory, DemandModel& demand, EvictionListener* listener, bool has_state)
      : tree_(tree), memory_(memory), demand_(demand), listener_(listener), has_state_(has_state) {}

  // Makes `bytes` more fit into the budget, in the order of `order`. False: what is left is live.
  bool MakeRoom(int64_t bytes, const EvictionOrder& order, TimeNs now);

  // `node` got a checkpoint that nobody asked for yet: it stays on probation until Promote(). Those on probation hold
  // at most `budget_bytes` together; the one that waited longest goes first.
  void PutOnProbation(Node& node, int64_t budget_bytes, TimeNs now);
  // The checkpoint of `node` was used.
  void Promote(const Node& node);
  int64_t probation_count() const { return static_cast<int64_t>(probation_.size()); }
  // The tree is about to lose checkpoints of the scopes that are meant by other hands (a flush).
  void ForgetProbation(const std::function<bool(const Scope&)>& is_meant);

  // Bytes of cached pages that no checkpoint makes usable; 0 after every pass.
  int64_t DeadKvBytes() const;
  // What the cache now takes for room: tokens of work expected to be saved by each byte of the dearest unit evicted,
  // of late. 0 while nothing had to go. A checkpoint that saves less than this times its bytes is not worth making.
  double price_per_byte() const { return price_per_byte_; }

  const EvictionCounts& counts() const { return counts_; }
  // Looks every node on probation up in the tree; stops the process where one is gone.
  void CheckIntegrity() const;

 private:
  class Pass;
  void DropCheckpoint(Node& node);
  void DropDeadKv(TimeNs now);
  Node* TrimUpward(Node& node, int64_t dense_bytes, TimeNs now);
  bool Fits(int64_t bytes) const { return memory_.used_bytes() + bytes <= memory_.budget_bytes(); }

  // Set at construction.
  RadixTree& tree_;
  CacheMemory& memory_;
  DemandModel& demand_;
  EvictionListener* const listener_;
  const bool has_state_;

  std::deque<Node*> probation_;  // The oldest first.
  double price_per_byte_ = 0;
  EvictionCounts counts_;
};

}  // namespace invar::cache
