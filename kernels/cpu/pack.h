// Packed weights: panels of 64 outputs, so that one product reads memory in a straight line.
//   bf16 [rows / 64][cols / 2][64][2]    f32 [rows / 64][cols][64]; missing rows and an odd last column are zeros.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace invar::kernels::cpu {

int64_t PackedPanelBytes(int64_t cols, DType packed);
int64_t PackedMatrixBytes(int64_t rows, int64_t cols, DType packed);

// `source` is row-major [rows, cols]. Threads: any.
void PackPanels(const void* source, DType source_dtype, int64_t rows, int64_t cols, DType packed, void* dest);

// Row `row` as floats: the way embeddings are read from a packed table.
void GatherRow(const PackedMatrix& matrix, int64_t row, float* out);

}  // namespace invar::kernels::cpu
