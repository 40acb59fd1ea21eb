// A fit knows many codes; a profile is sent around with those that its points use.
#pragma once

#include "engine/transfer/scd_profile.h"

namespace invar::engine {

// Effects: drops decoders that no point uses and columns of encoders beyond the largest rank in use.
void TrimScdProfile(ScdProfile& profile);

}  // namespace invar::engine
