// All vector operations, built for AVX-512 with BF16. Same sources as the other instruction sets, in its own namespace;
// nothing inline is shared with files built for another machine. Compile flags: kernels/CMakeLists.txt.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace invar::kernels::cpu {
namespace isa_avx512bf16 {

// In order of use.
// clang-format off
#include "kernels/cpu/v16_avx512_inl.h"
#include "kernels/cpu/math_inl.h"
#include "kernels/cpu/rows_inl.h"
#include "kernels/cpu/noise_inl.h"
#include "kernels/cpu/products_bf16_inl.h"
#include "kernels/cpu/reading_inl.h"
#include "kernels/cpu/matmul_inl.h"
#include "kernels/cpu/conv_inl.h"
#include "kernels/cpu/delta_inl.h"
#include "kernels/cpu/codes_vnni_inl.h"
#include "kernels/cpu/attend_codes_inl.h"
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/table_inl.h"
// clang-format on

// A constant, so that nothing of this file runs before it is chosen.
constexpr KernelTable kTable = MakeTable("avx512bf16");

}  // namespace isa_avx512bf16

const KernelTable& Avx512Bf16Table() { return isa_avx512bf16::kTable; }

}  // namespace invar::kernels::cpu
