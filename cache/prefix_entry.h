// PrefixEntry: what one request does for the cache by coming: where it counts as demand, as far as it was not counted
// yet, and where it leaves checkpoints. It is one entry however often the request is preempted: what comes back then
// comes to what it left itself, which says nothing of who comes to a prefix.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/prefix_match.h"

namespace invar::cache {

struct PrefixEntry {
  // Where in its tokens it meets others or is met; 0: nowhere, or counted already.
  int32_t met_at = 0;     // The end of what was there before.
  int32_t stable_at = 0;  // What follow-ups repeat of the prompt.

  int32_t private_from = 0;  // What it brings begins here, for the planner.
  int32_t turns = 0;         // How many requests in a row it follows up.
  // Where checkpoints are wanted, ascending; where one was left too, since it may be gone when the request goes on.
  std::vector<CheckpointPlace> places;
};

}  // namespace invar::cache
