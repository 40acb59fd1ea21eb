// EvictionOrder: which unit goes first. A unit is a checkpoint with the KV that only it makes usable (of dense models:
// a leaf's KV). Pure: what it needs is in the unit.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "cache/prefix/radix_tree.h"

namespace invar::cache {

struct EvictionUnit {
  Node* node = nullptr;   // Whose checkpoint, or leaf.
  int64_t bytes = 0;      // Freed with it.
  int32_t recompute = 0;  // Tokens that must be run again where it is missed: from the checkpoint above.
  int32_t hits = 0;       // Of nodes that would fall through to the checkpoint above.
  TimeNs used_at = 0;     // The last of them.
};

class EvictionOrder {
 public:
  virtual ~EvictionOrder() = default;
  // What is kept longest has the highest value. Threads: engine thread only.
  virtual double Value(const EvictionUnit& unit, TimeNs now) const = 0;
};

}  // namespace invar::cache
