// Rows against 16 columns at once: the inner loops of matching and of observed attention. The same bits on every
// machine.
#pragma once

#include <cstdint>

namespace invar::cache {

inline constexpr int64_t kDotColumns = 16;

// out[r][j] = sum_i rows[r * stride + i] * columns[i][j], i ascending, in float, product and sum rounded each.
// columns: [dim][16], out: [count][16].
void DotColumns(const float* rows, int64_t stride, int64_t count, const float* columns, int64_t dim, float* out);

// columns[i][j] = rows[j * stride + i] * factors[j] for `count` <= 16 rows of `dim` floats; other columns are 0.
void FillColumns(const float* rows, int64_t stride, const float* factors, int64_t count, int64_t dim, float* columns);

// How alike rows and columns are, from their products:
//   by distance  1 - (row_lengths[r] + column_lengths[j] - 2 products[r][j]) * factor, lengths squared
//   else         products[r][j] * row_lengths[r]
// What is no number counts as -infinity.
struct ColumnLikeness {
  bool by_distance = false;
  float factor = 0.0F;
  const float* row_lengths = nullptr;     // [count]
  const float* column_lengths = nullptr;  // [columns]; by distance only.
  int64_t count = 0;
  int64_t columns = 0;              // The first so many of the 16.
  const float* products = nullptr;  // [count][16]
};

// The best that rows and columns have seen so far. Begins with -infinity and block 0.
struct BestSoFar {
  float* rows = nullptr;      // [count][16]: of the columns j of all blocks.
  int32_t* blocks = nullptr;  // [count][16]: which block's that was; the first on ties.
  float* columns = nullptr;   // [16]: of all rows.
};
void RaiseBest(const ColumnLikeness& likeness, int32_t block, const BestSoFar& best);

}  // namespace invar::cache
