// NodeUse: how often requests came to one place of the tree, and when. It hangs on nodes and not on checkpoints, so
// that what a lost checkpoint served falls to the next one above it instead of being forgotten.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace invar::cache {

// Why later requests are expected to part from, or go on after, the last token of a node.
enum class UseOrigin : uint8_t {
  kNone,     // They are not: the node is on the way only.
  kEnd,      // A request ended here, or the part of its prompt that follow-ups repeat.
  kBranch,   // A request parted here from what was there.
  kPlanned,  // The placement policy expects it.
};
inline constexpr int kUseOrigins = 4;

// Requests still to come to a place.
struct Prospect {
  double requests = 0;    // Expected in all.
  double per_second = 0;  // The best rate at which holding what they need brings them; see demand_model.h.

  Prospect& operator+=(const Prospect& other) {
    requests += other.requests;
    per_second += other.per_second;
    return *this;
  }
};

struct NodeUse {
  TimeNs used_at = 0;  // Last made, hit or passed through as a prefix.
  UseOrigin origin = UseOrigin::kNone;
  int32_t turns = 0;  // Of an end: how many requests in a row the one that ended here followed up.
  int32_t hits = 0;   // Requests whose match ended here, since the origin.
  TimeNs met_at = 0;  // The last of them, or the origin.
  // Of nodes below that are gone, as it was at a time; it fades from then on.
  Prospect fallen;
  TimeNs fallen_at = 0;
};

}  // namespace invar::cache
