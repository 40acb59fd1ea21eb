// A server that does not know how good its drafts are: it learns the acceptance from rounds, lets ChooseMode() decide,
// and where it decodes plainly tries a round now and then, since acceptance changes with the text.
#pragma once

#include <cstdint>

#include "engine/speculate/cost_model.h"
#include "engine/speculate/mode.h"

namespace invar::tools {

struct AdaptiveOutcome {
  double tokens_per_s = 0;
  engine::ModeChoice chosen;  // The last one.
  double acceptance = 0;      // As learned.
};

// `load.acceptance` is what is drawn from and never told to the chooser. As in SimulateStagger the first 30 % of the
// virtual time is not counted.
AdaptiveOutcome SimulateAdaptive(const engine::TwoTierDevice& device, const engine::SpeculationLoad& load,
                                 const engine::ModeLimits& limits, uint64_t seed);

}  // namespace invar::tools
