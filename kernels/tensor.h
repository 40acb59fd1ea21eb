// Typed views of dense row-major memory: what operations read and write. A view owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"

namespace invar::kernels {

enum class DType : uint8_t { kF32 = 0, kBf16 = 1, kF16 = 2 };

constexpr int64_t BytesOf(const DType dtype) { return dtype == DType::kF32 ? 4 : 2; }
std::string_view DTypeName(DType dtype);

// [rows, cols], `stride` elements from row to row.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  T* row(const int64_t r) const { return data + r * stride; }
  // Columns [begin, begin + count) of every row.
  MatrixView Columns(const int64_t begin, const int64_t count) const { return {data + begin, rows, count, stride}; }
  MatrixView Rows(const int64_t begin, const int64_t count) const { return {row(begin), count, cols, stride}; }
  operator MatrixView<const T>() const { return {data, rows, cols, stride}; }  // NOLINT: adding const is harmless.
};
using F32View = MatrixView<float>;
using ConstF32View = MatrixView<const float>;

// Input of matrix products, in the backend's activation type (Numerics::activations): written by norms, attention,
// SwiGLU; read by Linear. Rows are `stride` elements apart.
struct Activations {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  std::byte* row_bytes(const int64_t r) const { return static_cast<std::byte*>(data) + r * stride * BytesOf(dtype); }
};

// A weight matrix [rows = outputs, cols = inputs] in the backend's own packed layout (Backend::PackMatrix).
struct PackedMatrix {
  const void* data = nullptr;
  DType dtype = DType::kBf16;  // Of the stored weights.
  int64_t rows = 0;
  int64_t cols = 0;
};

// Bytes that Backend::Copy moves: an even number of them, at even addresses.
struct CopyPiece {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t bytes = 0;
};

}  // namespace invar::kernels
