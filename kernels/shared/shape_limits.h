// Limits of shapes that several backends have, each with its own number.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "kernels/backend.h"

namespace invar::kernels {

inline std::optional<ShapeLimit> HeadDimLimit(const AttentionShape& shape, const int32_t most) {
  if (shape.head_dim % 2 == 0 && shape.head_dim <= most) return std::nullopt;
  return ShapeLimit{"head_dim", fmt::format("an even number, at most {}", most), shape.head_dim};
}

inline std::optional<ShapeLimit> ConvKernelLimit(const int32_t kernel, const int32_t most) {
  if (kernel >= 1 && kernel <= most) return std::nullopt;
  return ShapeLimit{"kernel", fmt::format("1 to {}", most), kernel};
}

}  // namespace invar::kernels
