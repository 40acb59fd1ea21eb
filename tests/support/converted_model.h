// Model folders stored in another type, for tests of what the stored type may and may not change.
#pragma once

#include <string>

#include "base/status.h"
#include "kernels/tensor.h"

namespace invar::testing {

// Copies the folder `source` to the empty folder `target` with every tensor of type `from` stored as `to`, rounded to
// nearest even where that holds less. Requires: one model.safetensors.
Status CopyConverted(const std::string& source, const std::string& target, kernels::DType from, kernels::DType to);

}  // namespace invar::testing
