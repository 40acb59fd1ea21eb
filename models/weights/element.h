// Weights as f32: reading elements of the stored types. At load and in tools only; the hot path reads packed matrices.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/bf16.h"
#include "kernels/tensor.h"

namespace invar::models {

// `data` need not be aligned: safetensors may start anywhere.
inline void ReadElements(const std::byte* data, const kernels::DType dtype, const int64_t count, float* out) {
  if (dtype == kernels::DType::kF32) {
    std::memcpy(out, data, static_cast<size_t>(count) * 4);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, data + 2 * i, 2);
    out[i] = dtype == kernels::DType::kBf16 ? kernels::FloatFromBf16(bits) : kernels::FloatFromF16(bits);
  }
}

}  // namespace invar::models
