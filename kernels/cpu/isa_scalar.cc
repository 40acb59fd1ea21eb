// All vector operations, built for the baseline of x86-64. Same sources as the other instruction sets, in its own
// namespace; nothing inline is shared with files built for another machine. Compile flags: kernels/CMakeLists.txt.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace invar::kernels::cpu {
namespace isa_scalar {

// In order of use.
// clang-format off
#include "kernels/cpu/v16_scalar_inl.h"
#include "kernels/cpu/math_inl.h"
#include "kernels/cpu/rows_inl.h"
#include "kernels/cpu/noise_inl.h"
#include "kernels/cpu/products_expanded_inl.h"
#include "kernels/cpu/reading_inl.h"
#include "kernels/cpu/matmul_inl.h"
#include "kernels/cpu/conv_inl.h"
#include "kernels/cpu/delta_inl.h"
#include "kernels/cpu/codes_lane_inl.h"
#include "kernels/cpu/codes_scalar_inl.h"
#include "kernels/cpu/attend_codes_inl.h"
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/table_inl.h"
// clang-format on

// A constant, so that nothing of this file runs before it is chosen.
constexpr KernelTable kTable = MakeTable("scalar");

}  // namespace isa_scalar

const KernelTable& ScalarTable() { return isa_scalar::kTable; }

void ExactFma16(const float* a, const float* b, const float* c, float* out) { isa_scalar::FmaExact(a, b, c, out); }

}  // namespace invar::kernels::cpu
