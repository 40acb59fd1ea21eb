// See scd_codes.h.
#include "engine/transfer/scd_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/bf16.h"

namespace invar::engine {
namespace {

constexpr float LargestCode(const CodeBits bits) { return bits == CodeBits::kInt8 ? 127.0F : 7.0F; }

// The bf16 at or above `x`, so that no code exceeds the largest.
uint16_t ScaleAtLeast(const float x) {
  const uint16_t nearest = kernels::Bf16FromFloat(x);
  return kernels::FloatFromBf16(nearest) >= x ? nearest : static_cast<uint16_t>(nearest + 1);
}

void PackScaled(const CodeBits bits, const float* row, const std::span<const float> sigma, std::byte* out) {
  float largest = 0.0F;
  for (size_t j = 0; j < sigma.size(); ++j) largest = std::max(largest, std::abs(row[j] / sigma[j]));
  const uint16_t scale_bits = std::isfinite(largest) ? ScaleAtLeast(largest) : 0;
  const float scale = kernels::FloatFromBf16(scale_bits);
  std::memcpy(out, &scale_bits, sizeof(scale_bits));
  out += sizeof(scale_bits);
  const float q_max = LargestCode(bits);
  for (size_t j = 0; j < sigma.size(); ++j) {
    const float x = scale > 0.0F ? row[j] / (sigma[j] * scale) * q_max : 0.0F;
    const auto code = static_cast<int>(std::lrint(std::clamp(x, -q_max, q_max)));
    if (bits == CodeBits::kInt8) {
      out[j] = static_cast<std::byte>(code);
    } else if (j % 2 == 0) {
      out[j / 2] = static_cast<std::byte>(code & 15);
    } else {
      out[j / 2] |= static_cast<std::byte>((code & 15) << 4);
    }
  }
}

void UnpackScaled(const CodeBits bits, const std::byte* in, const std::span<const float> sigma, float* row) {
  uint16_t scale_bits = 0;
  std::memcpy(&scale_bits, in, sizeof(scale_bits));
  in += sizeof(scale_bits);
  const float step = kernels::FloatFromBf16(scale_bits) / LargestCode(bits);
  for (size_t j = 0; j < sigma.size(); ++j) {
    int code = 0;
    if (bits == CodeBits::kInt8) {
      code = static_cast<int8_t>(in[j]);
    } else {
      const int nibble = (static_cast<int>(in[j / 2]) >> (j % 2 == 0 ? 0 : 4)) & 15;
      code = nibble < 8 ? nibble : nibble - 16;
    }
    row[j] = static_cast<float>(code) * step * sigma[j];
  }
}

}  // namespace

int64_t CodeRowBytes(const CodeBits bits, const int64_t codes) {
  switch (bits) {
    case CodeBits::kF32:
      return 4 * codes;
    case CodeBits::kBf16:
      return 2 * codes;
    case CodeBits::kInt8:
      return 2 + codes;
    case CodeBits::kInt4:
      return 2 + (codes + 1) / 2;
  }
  return 0;
}

void PackCodes(const CodeBits bits, const kernels::ConstF32View& rows, const std::span<const float> sigma,
               std::vector<std::byte>& out) {
  const int64_t row_bytes = CodeRowBytes(bits, rows.cols);
  const size_t begin = out.size();
  out.resize(begin + static_cast<size_t>(rows.rows * row_bytes));
  for (int64_t r = 0; r < rows.rows; ++r) {
    std::byte* const to = out.data() + begin + r * row_bytes;
    if (bits == CodeBits::kF32) {
      std::memcpy(to, rows.row(r), static_cast<size_t>(row_bytes));
    } else if (bits == CodeBits::kBf16) {
      for (int64_t c = 0; c < rows.cols; ++c) {
        const uint16_t x = kernels::Bf16FromFloat(rows.row(r)[c]);
        std::memcpy(to + 2 * c, &x, sizeof(x));
      }
    } else {
      Check(std::ssize(sigma) == rows.cols, "every column of codes has a size", sigma.size(), rows.cols);
      PackScaled(bits, rows.row(r), sigma, to);
    }
  }
}

FloatRows UnpackCodes(const CodeBits bits, const std::span<const std::byte> bytes, const int64_t rows,
                      const int64_t cols, const std::span<const float> sigma) {
  const int64_t row_bytes = CodeRowBytes(bits, cols);
  Check(std::ssize(bytes) == rows * row_bytes, "packed rows have the size of their rows", bytes.size(), rows);
  FloatRows out(rows, cols);
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* const from = bytes.data() + r * row_bytes;
    if (bits == CodeBits::kF32) {
      std::memcpy(out.row(r), from, static_cast<size_t>(row_bytes));
    } else if (bits == CodeBits::kBf16) {
      for (int64_t c = 0; c < cols; ++c) {
        uint16_t x = 0;
        std::memcpy(&x, from + 2 * c, sizeof(x));
        out.row(r)[c] = kernels::FloatFromBf16(x);
      }
    } else {
      UnpackScaled(bits, from, sigma, out.row(r));
    }
  }
  return out;
}

}  // namespace invar::engine
