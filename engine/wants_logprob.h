// Whether a request is told of the chances of its tokens: asked where they are computed, and where they come from
// elsewhere.
#pragma once

#include "engine/request.h"

namespace invar::engine {

inline bool WantsLogprob(const OutputParams& output) { return output.logprobs.has_value() || output.logprob_bits; }

}  // namespace invar::engine
