// The ways that are tried: of single layers, for the greedy choice, and of whole prefixes, as baselines.
#pragma once

#include <vector>

#include "engine/transfer/scd_profile.h"
#include "tools/calibrate/options.h"

namespace invar::calibrate {

// Numbers a token of codes that get a nonlinear decoder.
std::vector<int32_t> JointRanks(const engine::ScdShape& shape);
std::vector<int32_t> InputRanks(const engine::ScdShape& shape);

// Everything that `layer` may cross as.
std::vector<engine::ScdLayerPlan> PlansOf(const engine::ScdShape& shape, size_t layer, const CalibrateOptions& options);

// drop, raw, raw4, reuse_kv (as in the paper), reuse: whole prefixes, each with one rule for its attention layers.
// Recurrent layers: nothing, raw, or their mapped state with the longest tail.
std::vector<engine::ScdPoint> Baselines(const engine::ScdShape& shape, const CalibrateOptions& options);

// Every contiguous group of a quarter of the layers run again by the consumer, the others raw.
std::vector<engine::ScdPoint> RecomputedGroups(const engine::ScdShape& shape);

}  // namespace invar::calibrate
