// The makers behind registry.cc's rows: one a file.
#pragma once

#include <memory>

#include "engine/speculate/drafter.h"

namespace invar::engine {

std::unique_ptr<Drafter> MakeNgramDrafter();

}  // namespace invar::engine
