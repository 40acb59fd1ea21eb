// Chooses the width of vectors once a call; the bits are the same.
#include "cache/compress/dot_columns.h"

#include <xmmintrin.h>

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

void RaiseBest(const ColumnLikeness& likeness, const int32_t block, const BestSoFar& best) {
  if (__builtin_cpu_supports("avx2")) return RaiseBestAvx2(likeness, block, best);
  RaiseAll(likeness, block, best);
}

// Four rows by four dims at a time.
void FillColumns(const float* const rows, const int64_t stride, const float* const factors, const int64_t count,
                 const int64_t dim, float* const columns) {
  const int64_t whole = dim / 4 * 4;
  for (int64_t j = 0; j < kDotColumns; j += 4) {
    const auto row = [&](const int64_t k, const int64_t i) {
      return j + k < count ? _mm_mul_ps(_mm_loadu_ps(rows + (j + k) * stride + i), _mm_set1_ps(factors[j + k]))
                           : _mm_setzero_ps();
    };
    for (int64_t i = 0; i < whole; i += 4) {
      __m128 a = row(0, i);
      __m128 b = row(1, i);
      __m128 c = row(2, i);
      __m128 d = row(3, i);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      float* to = columns + i * kDotColumns + j;
      _mm_storeu_ps(to, a);
      _mm_storeu_ps(to + kDotColumns, b);
      _mm_storeu_ps(to + 2 * kDotColumns, c);
      _mm_storeu_ps(to + 3 * kDotColumns, d);
    }
    for (int64_t k = j; k < j + 4; ++k) {
      for (int64_t i = whole; i < dim; ++i) {
        columns[i * kDotColumns + k] = k < count ? rows[k * stride + i] * factors[k] : 0.0F;
      }
    }
  }
}

}  // namespace invar::cache
