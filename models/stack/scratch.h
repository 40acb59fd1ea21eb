// Scratch: working memory of one forward, taken once at load. Layers run one after another and take views from the
// start each time, so the memory is that of the hungriest layer. Measuring is a dry run of the same takes on no memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "kernels/backend.h"

namespace invar::models {

class Scratch {
 public:
  // Measures: views have no memory and must not be touched.
  Scratch() = default;
  // Holds `bytes`, zeroed, where operations of `backend` find them. Errors: RESOURCE_EXHAUSTED.
  static StatusOr<Scratch> Of(kernels::Backend& backend, const int64_t bytes) {
    StatusOr<kernels::RowMemory> memory = backend.AllocateRows(bytes, kernels::RowUse::kOperations);
    if (!memory.ok()) return memory.status();
    return Scratch(*std::move(memory), bytes);
  }

  // Views taken before die.
  void Reset() { used_ = 0; }
  kernels::F32View F32(const int64_t rows, const int64_t cols) {
    return {.data = static_cast<float*>(Take(rows * cols * 4)), .rows = rows, .cols = cols, .stride = cols};
  }
  kernels::Activations Typed(const int64_t rows, const int64_t cols, const kernels::DType dtype) {
    return {.data = Take(rows * cols * kernels::BytesOf(dtype)),
            .dtype = dtype,
            .rows = rows,
            .cols = cols,
            .stride = cols};
  }
  // Most bytes that were in use at once.
  int64_t peak_bytes() const { return peak_; }

 private:
  static constexpr int64_t kAlignment = 64;  // Cache line, and the widest vector load.

  Scratch(kernels::RowMemory memory, const int64_t bytes) : bytes_(bytes), memory_(std::move(memory)) {}

  void* Take(const int64_t bytes) {
    const int64_t begin = used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    peak_ = std::max(peak_, used_);
    if (memory_ == nullptr) return nullptr;
    Check(used_ <= bytes_, "a forward takes no more scratch than was measured", used_, bytes_);
    return memory_.get() + begin;
  }

  int64_t bytes_ = 0;
  int64_t used_ = 0;
  int64_t peak_ = 0;
  kernels::RowMemory memory_;
};

}  // namespace invar::models
