// The AVX-512 source without the bf16 pair product, run by emulated_avx512.h. Defines what kernels/cpu/isa_avx512.cc
// defines, so that the linker takes this instead: every kernel test then covers "avx512" on a machine without it.
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_table.h"
#include "tests/kernels/emulated_avx512.h"

namespace invar::kernels::cpu {
namespace emulated_avx512 {

// In order of use.
// clang-format off
#include "kernels/cpu/v16_avx512_inl.h"
#include "kernels/cpu/math_inl.h"
#include "kernels/cpu/rows_inl.h"
#include "kernels/cpu/noise_inl.h"
#include "kernels/cpu/products_expanded_inl.h"
#include "kernels/cpu/reading_inl.h"
#include "kernels/cpu/matmul_inl.h"
#include "kernels/cpu/conv_inl.h"
#include "kernels/cpu/delta_inl.h"
#include "kernels/cpu/codes_lane_inl.h"
#include "kernels/cpu/codes_avx2_inl.h"
#include "kernels/cpu/attend_codes_inl.h"
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/table_inl.h"
// clang-format on

constexpr KernelTable kTable = MakeTable("avx512");

}  // namespace emulated_avx512

const KernelTable& Avx512Table() { return emulated_avx512::kTable; }

}  // namespace invar::kernels::cpu
