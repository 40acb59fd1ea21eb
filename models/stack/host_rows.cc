// Blocks stay, since views of them are out when the next one is taken; doubling keeps them few.
#include "models/stack/host_rows.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace invar::models {

std::byte* HostRows::Take(const int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  const int64_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (current_ < blocks_.size() && used_ + taken > blocks_[current_].bytes) {
    ++current_;
    used_ = 0;
  }
  if (current_ == blocks_.size()) {
    const int64_t grown = std::max(taken, blocks_.empty() ? 0 : 2 * blocks_.back().bytes);
    StatusOr<kernels::RowMemory> memory = backend_.AllocateRows(grown, kernels::RowUse::kHostToo);
    Check(memory.ok(), "memory for what the host reads of a forward", grown);
    blocks_.push_back({*std::move(memory), grown});
  }
  std::byte* const at = blocks_[current_].memory.get() + used_;
  used_ += taken;
  return at;
}

std::byte* HostRows::Copy(const void* rows, int64_t count, int64_t row_bytes, const int64_t stride_bytes) {
  if (row_bytes == stride_bytes) {
    row_bytes *= count;
    count = 1;
  }
  std::byte* const copy = Take(count * row_bytes);
  pieces_.clear();
  for (int64_t r = 0; r < count; ++r) {
    pieces_.push_back({copy + r * row_bytes, static_cast<const std::byte*>(rows) + r * stride_bytes, row_bytes});
  }
  backend_.Copy(pieces_);
  return copy;
}

kernels::ConstF32View HostRows::Bring(const kernels::ConstF32View& rows) {
  constexpr int64_t kBytes = sizeof(float);
  if (!backend_.rows_are_apart()) return rows;
  const std::byte* copy = Copy(rows.data, rows.rows, rows.cols * kBytes, rows.stride * kBytes);
  return {reinterpret_cast<const float*>(copy), rows.rows, rows.cols, rows.cols};
}

kernels::Activations HostRows::Bring(const kernels::Activations& rows) {
  if (!backend_.rows_are_apart()) return rows;
  const int64_t bytes = kernels::BytesOf(rows.dtype);
  std::byte* copy = Copy(rows.data, rows.rows, rows.cols * bytes, rows.stride * bytes);
  return {.data = copy, .dtype = rows.dtype, .rows = rows.rows, .cols = rows.cols, .stride = rows.cols};
}

}  // namespace invar::models
