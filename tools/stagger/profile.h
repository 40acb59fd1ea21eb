// A stagger-sim profile: a device by its data sheet and one kind of request, as a YAML file says them.
#pragma once

#include <string>

#include "base/status.h"
#include "engine/speculate/cost_model.h"

namespace invar::tools {

struct StaggerProfile {
  double hbm_gb = 0;              // Fast tier, 10^9 bytes.
  double hbm_tbps = 0;            // Its bandwidth, 10^12 bytes/s.
  double link_gbps = 0;           // Slow tier to fast tier, 10^9 bytes/s.
  double tflops = 0;              // Peak of matrix products.
  double weights_gb = 0;          // bf16 weights.
  double kv_bytes_per_token = 0;  // Full, all layers.
  double state_bytes = 0;         // Recurrent state of one request; 0: a dense model.
  double context_tokens = 0;
  double compression = 0;   // Full over compressed bytes, at least 1.
  double acceptance = 0;    // Of a drafted token, [0, 1].
  double prefix_group = 1;  // Requests that share their context.
  double wire_factor = 1;   // Full bytes over bytes on the link.
  double gap_s_max = 0;     // Longest time between two commits of a request; 0: any.

  engine::TwoTierDevice device() const;
  engine::SpeculationLoad load() const;
};

// Errors: NOT_FOUND (the file), INVALID_ARGUMENT naming file, line, key, wanted and found: unknown, repeated or missing
// keys, values that are no number or out of range, weights that leave no room for KV.
StatusOr<StaggerProfile> LoadStaggerProfile(const std::string& path);

}  // namespace invar::tools
