// Rows of floats with an owner: what semantic cache distillation (SCD) takes from one model and makes for another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tensor.h"

namespace invar::engine {

// [rows, cols], row after row, no gaps.
struct FloatRows {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values = {};

  FloatRows() = default;
  FloatRows(const int64_t row_count, const int64_t col_count)
      : rows(row_count), cols(col_count), values(static_cast<size_t>(row_count * col_count)) {}

  float* row(const int64_t r) { return values.data() + r * cols; }
  const float* row(const int64_t r) const { return values.data() + r * cols; }
  kernels::ConstF32View view() const { return {values.data(), rows, cols, cols}; }
  kernels::ConstF32View Rows(const int64_t begin, const int64_t count) const { return view().Rows(begin, count); }
};

}  // namespace invar::engine
