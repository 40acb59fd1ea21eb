// The inner loops of dot_columns.h with vectors of 32 bytes. Requires: the processor has AVX2.
#pragma once

#include "cache/compress/dot_columns.h"

namespace invar::cache {

void DotColumnsAvx2(const float* rows, int64_t stride, int64_t count, const float* columns, int64_t dim, float* out);
void RaiseBestAvx2(const ColumnLikeness& likeness, int32_t block, const BestSoFar& best);

}  // namespace invar::cache
