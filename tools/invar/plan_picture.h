// The picture of `invar plan --plot`: the histogram of overlap depths, and below it one strip a policy with its
// checkpoints, on the same axis of depths.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/checkpoint/demand.h"

namespace invar::tools {

struct PlacedPolicy {
  std::string_view name;
  std::vector<int32_t> positions;        // Ascending.
  double expected_recompute_tokens = 0;  // Mean over all requests.
};

// A whole SVG document. `policies[0]` is the one the plan was made for: its checkpoints run through the histogram.
std::string DrawPlan(cache::DemandView demand, int32_t length, const std::vector<PlacedPolicy>& policies);

}  // namespace invar::tools
