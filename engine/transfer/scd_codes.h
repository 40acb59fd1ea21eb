// Codes of SCD on the wire: rows of floats in 32, 16, 8 or 4 bits.
// Layout of R rows of n codes: kF32 and kBf16 plainly, row after row; kInt8 and kInt4 per row a bf16 scale s, then n
// codes q (kInt4: two in a byte, the first in its low half; an odd last one leaves the high half zero), meaning
//   value[j] = q[j] * s * sigma[j] / q_max,  q in [-q_max, q_max], q_max = 127 or 7
// sigma is each column's usual size, known to both sides from the profile: columns share one scale a row, and no value
// is cut off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/transfer/scd_rows.h"

namespace invar::engine {

enum class CodeBits : uint8_t { kF32 = 0, kBf16 = 1, kInt8 = 2, kInt4 = 3 };
inline constexpr std::string_view kCodeBitsNames[] = {"f32", "bf16", "int8", "int4"};
constexpr std::string_view CodeBitsName(const CodeBits bits) { return kCodeBitsNames[static_cast<size_t>(bits)]; }

int64_t CodeRowBytes(CodeBits bits, int64_t codes);

// Appends all rows to `out`. Requires: sigma has rows.cols values above 0 (unused by kF32 and kBf16). Threads: any.
void PackCodes(CodeBits bits, const kernels::ConstF32View& rows, std::span<const float> sigma,
               std::vector<std::byte>& out);
// Requires: bytes.size() == rows * CodeRowBytes(bits, cols). Any bytes give some floats. Threads: any.
FloatRows UnpackCodes(CodeBits bits, std::span<const std::byte> bytes, int64_t rows, int64_t cols,
                      std::span<const float> sigma);

}  // namespace invar::engine
