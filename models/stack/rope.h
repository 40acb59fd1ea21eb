// Rotary position embedding: from config.json's words to inverse frequencies, once at load.
// Both layouts are read: rope_parameters {rope_type, rope_theta, partial_rotary_factor, ...}, and the older rope_theta,
// rope_scaling and partial_rotary_factor at the top. Types: default, linear, llama3, yarn; others are refused.
#pragma once

#include <cstdint>
#include <vector>

#include "models/config/config_reader.h"

namespace invar::models {

struct RopePlan {
  std::string type = "default";
  std::vector<double> inverse_frequencies;  // [rotary_dims / 2]
  double factor = 1.0;                      // Of cos and sin (yarn's attention factor).
  int32_t max_positions = 0;                // Positions the scaling allows for; at least max_position_embeddings.
};

// `partial_default`: rotary share of a head where no field says it (hybrids 0.25, dense 1).
RopePlan ReadRope(ConfigReader& config, int32_t head_dim, double partial_default);

}  // namespace invar::models
