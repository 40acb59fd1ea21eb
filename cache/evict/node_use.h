// NodeUse: how often requests came to one place of the tree, and when. It hangs on nodes and not on checkpoints, so
// that what a lost checkpoint served falls to the next one above it instead of being forgotten.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace invar::cache {

struct NodeUse {
  int32_t hits = 0;  // Requests whose match ended here, the one that made the node not counted.
  TimeNs created_at = 0;
  TimeNs used_at = 0;  // Last made, hit or passed through as a prefix.
};

}  // namespace invar::cache
