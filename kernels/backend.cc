// What backends do that compute in the host's memory, where each operation has run when it returns.
#include "kernels/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace invar::kernels {

StatusOr<RowMemory> Backend::AllocateRows(const int64_t bytes, RowUse /*use*/) {
  constexpr std::align_val_t kAlignment{64};  // Cache line, and the widest vector load.
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  auto* const memory = static_cast<std::byte*>(::operator new(size, kAlignment, std::nothrow));
  if (memory == nullptr) return ResourceExhausted(fmt::format("wanted {} bytes of memory for rows", bytes));
  std::memset(memory, 0, size);
  return RowMemory(memory, [](std::byte* data) { ::operator delete(data, kAlignment); });
}

void Backend::Add(const ConstF32View x, const F32View out) {
  for (int64_t row = 0; row < out.rows; ++row) {
    for (int64_t c = 0; c < out.cols; ++c) out.row(row)[c] += x.row(row)[c];
  }
}

void Backend::Copy(const std::span<const CopyPiece> pieces) {
  for (const CopyPiece& piece : pieces) std::memcpy(piece.to, piece.from, static_cast<size_t>(piece.bytes));
}

}  // namespace invar::kernels
