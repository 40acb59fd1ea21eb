// Chooses the width of vectors once a call; the bits are the same.
#include "cache/compress/dot_columns.h"

#include "cache/compress/dot_columns_avx2.h"

namespace invar::cache {
namespace {

constexpr int kBytes = 16;  // What every x86-64 has.
constexpr int kRows = 2;

#include "cache/compress/dot_columns_inl.h"

}  // namespace

void DotColumns(const float* const rows, const int64_t stride, const int64_t count, const float* const columns,
                const int64_t dim, float* const out) {
  if (__builtin_cpu_supports("avx2")) return DotColumnsAvx2(rows, stride, count, columns, dim, out);
  DotAll(rows, stride, count, columns, dim, out);
}

void FillColumns(const float* const rows, const int64_t stride, const float* const factors, const int64_t count,
                 const int64_t dim, float* const columns) {
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t j = 0; j < kDotColumns; ++j) {
      columns[i * kDotColumns + j] = j < count ? rows[j * stride + i] * factors[j] : 0.0F;
    }
  }
}

}  // namespace invar::cache
