// Weights as f32: reading and writing single elements of the stored types. At load and in tools only; the hot path
// reads packed matrices.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/tensor.h"

namespace invar::models {

inline float FromBf16(const uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Round to nearest even; NaN stays NaN.
inline uint16_t ToBf16(const float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

// Exact for every half, subnormals included.
inline float FromF16(const uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

// `data` need not be aligned: safetensors may start anywhere.
inline void ReadElements(const std::byte* data, const kernels::DType dtype, const int64_t count, float* out) {
  if (dtype == kernels::DType::kF32) {
    std::memcpy(out, data, static_cast<size_t>(count) * 4);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, data + 2 * i, 2);
    out[i] = dtype == kernels::DType::kBf16 ? FromBf16(bits) : FromF16(bits);
  }
}

}  // namespace invar::models
