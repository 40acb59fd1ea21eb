// What went between memory and the slow tiers: plain numbers that only grow.
#pragma once

#include <cstdint>

namespace invar::cache {

struct PrefixWriteCounts {
  int64_t pages = 0, states = 0;  // Given to tiers.
  int64_t refused = 0;            // No room for the copy or in the tier's queue: what should have been kept is lost.
};

struct PrefixLoadCounts {
  int64_t begun = 0;     // Windows of loads.
  int64_t failed = 0;    // Of these, brought nothing: late, missing, corrupt.
  int64_t refused = 0;   // Not begun: no room for the copy.
  int64_t too_dear = 0;  // Not begun: running the tokens again was expected to be faster.
  int64_t tokens = 0;    // Brought, that memory did not have.
};

}  // namespace invar::cache
