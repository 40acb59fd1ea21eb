// Instruction sets the cpu backend is built for. The one list: configuration and tools offer these names, and
// kernels/cpu/isa.cc binds each to its table.
#pragma once

#include <array>
#include <string_view>

namespace invar {

inline constexpr std::array<std::string_view, 4> kIsaNames = {"avx512bf16", "avx512", "avx2", "scalar"};

}  // namespace invar
