// Conversions between float and the 16-bit float types, for packing and the reference; round to nearest even.
// Not for the per-instruction-set files, which share no inline function (see cpu/kernel_table.h).
#pragma once

#include <bit>
#include <cstdint>

namespace invar::kernels {

constexpr float FloatFromBf16(const uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

constexpr uint16_t Bf16FromFloat(const float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);  // NaN stays NaN.
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float FloatFromF16(const uint16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000U) << 16;
  const uint32_t exponent = (x >> 10) & 0x1fU;
  const uint32_t mantissa = x & 0x3ffU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // Subnormal or zero: exact.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

}  // namespace invar::kernels
