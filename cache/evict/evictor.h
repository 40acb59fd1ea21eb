// Evictor: frees cached memory, least valuable unit first, KV that no checkpoint makes usable before all units.
// Source of the unit: Shirokikh and Nikolenko, "Sparse prefix caching for hybrid and recurrent LLM serving"
// (arXiv 2605.05219); docs/PREFIX_CACHE.md says how Invar values it.
// Threads: engine thread only.
#pragma once

#include <cstdint>

#include "cache/cache_memory.h"
#include "cache/evict/eviction_order.h"
#include "cache/prefix/radix_tree.h"

namespace invar::cache {

// Told of every unit before it goes, while its memory is still there.
class EvictionListener {
 public:
  virtual ~EvictionListener() = default;
  virtual void Evicting(const Node& node, TimeNs now) = 0;
};

struct EvictionCounts {
  int64_t checkpoints = 0;
  int64_t pages = 0;
  int64_t passes = 0;
};

class Evictor {
 public:
  // `has_state`: checkpoints decide what is usable. Requires: all outlive this.
  Evictor(RadixTree& tree, CacheMemory& memory, const EvictionOrder& order, EvictionListener& listener, bool has_state)
      : tree_(tree), memory_(memory), order_(order), listener_(listener), has_state_(has_state) {}

  // Makes `bytes` more fit into the budget. False: what is left is live.
  bool MakeRoom(int64_t bytes, TimeNs now);
  // Bytes of cached pages that no checkpoint makes usable; 0 after every pass.
  int64_t DeadKvBytes() const;

  const EvictionCounts& counts() const { return counts_; }

 private:
  void DropDeadKv();
  std::vector<EvictionUnit> Units() const;
  void Evict(const EvictionUnit& unit, int64_t bytes);
  bool Fits(int64_t bytes) const { return memory_.used_bytes() + bytes <= memory_.budget_bytes(); }

  // Set at construction.
  RadixTree& tree_;
  CacheMemory& memory_;
  const EvictionOrder& order_;
  EvictionListener& listener_;
  const bool has_state_;

  EvictionCounts counts_;
};

}  // namespace invar::cache
