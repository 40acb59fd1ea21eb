// DotColumns with vectors of 32 bytes. Requires: the processor has AVX2.
#pragma once

#include <cstdint>

namespace invar::cache {

void DotColumnsAvx2(const float* rows, int64_t stride, int64_t count, const float* columns, int64_t dim, float* out);

}  // namespace invar::cache
