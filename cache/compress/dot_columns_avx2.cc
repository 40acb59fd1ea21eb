// Compiled for AVX2; includes nothing whose inline functions could be linked in its copy.
#include "cache/compress/dot_columns_avx2.h"

namespace invar::cache {
namespace {

constexpr int kBytes = 32;
constexpr int kRows = 4;

#include "cache/compress/dot_columns_inl.h"

}  // namespace

void DotColumnsAvx2(const float* const rows, const int64_t stride, const int64_t count, const float* const columns,
                    const int64_t dim, float* const out) {
  DotAll(rows, stride, count, columns, dim, out);
}

void RaiseBestAvx2(const ColumnLikeness& likeness, const int32_t block, const BestSoFar& best) {
  RaiseAll(likeness, block, best);
}

}  // namespace invar::cache
