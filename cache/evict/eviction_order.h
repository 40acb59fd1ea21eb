// EvictionOrder: which unit goes first. A unit is a checkpoint with the KV that only it makes usable (of dense models:
// a leaf's KV). Pure: what it needs is in the unit.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "cache/tree/node_use.h"

namespace invar::cache {

struct EvictionUnit {
  int64_t bytes = 0;      // Freed with it.
  int32_t recompute = 0;  // Tokens that must be run again where it is missed: from the checkpoint above.
  Prospect demand = {};   // Requests still expected that would fall through to the checkpoint above.
  TimeNs used_at = 0;     // The last request at or below.
};

// Tokens of work that the unit is expected to save for each of its bytes: what is lost with it, per byte.
inline double SavingPerByte(const EvictionUnit& unit) {
  return unit.bytes > 0 ? unit.demand.requests * unit.recompute / static_cast<double>(unit.bytes) : 0;
}

class EvictionOrder {
 public:
  virtual ~EvictionOrder() = default;
  // What is kept longest has the highest value. Threads: engine thread only.
  virtual double Value(const EvictionUnit& unit) const = 0;
};

}  // namespace invar::cache
