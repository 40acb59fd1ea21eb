// Packing is a transpose of 64 x 16 words at a time: a source line is used up when it is read, and the 4 KiB written
// stay in the first-level cache.
#include "kernels/cpu/pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/kernel_table.h"
#include "kernels/shared/packing.h"

namespace invar::kernels::cpu {
namespace {

// The two values of pair `pair` of a source row, as one word.
uint32_t PairAt(const void* source, const DType dtype, const int64_t cols, const int64_t row, const int64_t pair) {
  const int64_t index = row * cols + pair * 2;
  const bool whole = pair * 2 + 1 < cols;
  if (dtype == DType::kBf16 && whole) {
    uint32_t word;
    std::memcpy(&word, static_cast<const uint16_t*>(source) + index, sizeof(word));
    return word;
  }
  const uint32_t even = Bf16At(source, dtype, index);
  const uint32_t odd = whole ? Bf16At(source, dtype, index + 1) : 0;
  return even | odd << 16;
}

// Calls put(k, column) over one panel in blocks of 16 k.
template <typename Put>
void EachPlace(const int64_t k_count, const int64_t columns, const Put& put) {
  for (int64_t block = 0; block < k_count; block += 16) {
    const int64_t end = std::min(block + 16, k_count);
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t k = block; k < end; ++k) put(k, c);
    }
  }
}

}  // namespace

int64_t PackedPanelBytes(const int64_t cols, const DType packed) {
  return packed == DType::kF32 ? cols * kPanelColumns * 4 : (cols + 1) / 2 * kPanelColumns * 4;
}

int64_t PackedMatrixBytes(const int64_t rows, const int64_t cols, const DType packed) {
  return (rows + kPanelColumns - 1) / kPanelColumns * PackedPanelBytes(cols, packed);
}

void PackPanels(const void* source, const DType source_dtype, const int64_t rows, const int64_t cols,
                const DType packed, void* dest) {
  const int64_t panel_bytes = PackedPanelBytes(cols, packed);
  for (int64_t first = 0; first < rows; first += kPanelColumns) {
    std::byte* panel = static_cast<std::byte*>(dest) + first / kPanelColumns * panel_bytes;
    const int64_t columns = std::min<int64_t>(kPanelColumns, rows - first);
    if (columns < kPanelColumns) std::memset(panel, 0, panel_bytes);
    if (packed == DType::kF32) {
      auto* to = reinterpret_cast<float*>(panel);
      EachPlace(cols, columns, [&](const int64_t k, const int64_t c) {
        to[k * kPanelColumns + c] = FloatAt(source, source_dtype, (first + c) * cols + k);
      });
    } else {
      auto* to = reinterpret_cast<uint32_t*>(panel);
      EachPlace((cols + 1) / 2, columns, [&](const int64_t k, const int64_t c) {
        to[k * kPanelColumns + c] = PairAt(source, source_dtype, cols, first + c, k);
      });
    }
  }
}

void GatherRow(const PackedMatrix& matrix, const int64_t row, float* out) {
  const std::byte* panel =
      static_cast<const std::byte*>(matrix.data) + row / kPanelColumns * PackedPanelBytes(matrix.cols, matrix.dtype);
  const int64_t c = row % kPanelColumns;
  if (matrix.dtype == DType::kF32) {
    const auto* from = reinterpret_cast<const float*>(panel);
    for (int64_t k = 0; k < matrix.cols; ++k) out[k] = from[k * kPanelColumns + c];
    return;
  }
  const auto* from = reinterpret_cast<const uint16_t*>(panel);
  for (int64_t k = 0; k < matrix.cols; ++k) out[k] = FloatFromBf16(from[(k / 2 * kPanelColumns + c) * 2 + k % 2]);
}

}  // namespace invar::kernels::cpu
