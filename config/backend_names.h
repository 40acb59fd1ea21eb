// Who computes: the names that configuration and tools offer and kernels/backends.cc makes.
#pragma once

#include <array>
#include <string_view>

namespace invar {

inline constexpr std::array<std::string_view, 4> kBackendNames = {"cpu", "cuda", "auto", "reference"};

}  // namespace invar
