// What went between memory and the tiers: plain numbers that only grow.
#pragma once

#include <cstdint>

namespace invar::cache {

struct PrefixWriteCounts {
  int64_t pages = 0, states = 0;  // Given to tiers.
  // No room for the copy or in the tier's queue, or the tier is left alone: what should have been kept is lost.
  int64_t refused = 0;
};

struct PrefixLoadCounts {
  int64_t begun = 0;     // Windows of loads.
  int64_t failed = 0;    // Of these, brought nothing: late, missing, corrupt.
  int64_t refused = 0;   // Not begun: no room for the copy.
  int64_t paused = 0;    // A tier that has some of it was left alone, so it was not begun or is of less.
  int64_t too_dear = 0;  // Not begun: running the tokens again was expected to be faster.
  int64_t tokens = 0;    // Brought, that memory did not have.
};

}  // namespace invar::cache
