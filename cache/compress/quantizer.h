// A kind that keeps every token, in fewer bits: all there is to it is the encoding and how many of the latest rows stay
// exact.
#pragma once

#include "cache/compress/kinds.h"

namespace invar::cache {

// Requires: the kind's settings have `recent`.
std::unique_ptr<Compressor> MakeQuantizer(const Settings& settings, kernels::KvEncoding encoding);

}  // namespace invar::cache
