// ClassKey: which prefixes learn from each other.
#pragma once

#include <compare>
#include <cstdint>

namespace invar::cache {

// Prefixes expected to be come back to in the same way. The planner only compares keys.
struct ClassKey {
  uint64_t space = 0;       // Tenant and salt: what one tenant does must not show in another's checkpoints.
  int64_t trunk = 0;        // The tree node the private segment hangs on; never reused for another node.
  int32_t size_bucket = 0;  // SizeBucket() of the segment.
  auto operator<=>(const ClassKey&) const = default;
};

}  // namespace invar::cache
