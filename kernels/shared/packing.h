// What backends have in common where they pack weights: the stored type, and elements of a source of any type.
// Not for the per-instruction-set files, which share no inline function (see cpu/kernel_table.h).
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/tensor.h"

namespace invar::kernels {

// bf16 stays; f16 and f32 become bf16, or f32 where activations are f32.
inline DType PackedDTypeOf(const DType source, const DType activations) {
  return source != DType::kBf16 && activations == DType::kF32 ? DType::kF32 : DType::kBf16;
}

inline float FloatAt(const void* source, const DType dtype, const int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(source)[index];
    case DType::kBf16:
      return FloatFromBf16(static_cast<const uint16_t*>(source)[index]);
    case DType::kF16:
      return FloatFromF16(static_cast<const uint16_t*>(source)[index]);
  }
  return 0.0F;
}

inline uint16_t Bf16At(const void* source, const DType dtype, const int64_t index) {
  if (dtype == DType::kBf16) return static_cast<const uint16_t*>(source)[index];
  return Bf16FromFloat(FloatAt(source, dtype, index));
}

}  // namespace invar::kernels
