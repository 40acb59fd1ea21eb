// Scalar products of rows with 16 columns at once: the inner loop of matching and of observed attention.
#pragma once

#include <cstdint>

namespace invar::cache {

inline constexpr int64_t kDotColumns = 16;

// out[r][j] = sum_i rows[r * stride + i] * columns[i][j], i ascending, in float, product and sum rounded each: the same
// bits on every machine. columns: [dim][16], out: [count][16].
void DotColumns(const float* rows, int64_t stride, int64_t count, const float* columns, int64_t dim, float* out);

// columns[i][j] = rows[j * stride + i] * factors[j] for `count` <= 16 rows of `dim` floats; other columns are 0.
void FillColumns(const float* rows, int64_t stride, const float* factors, int64_t count, int64_t dim, float* columns);

}  // namespace invar::cache
