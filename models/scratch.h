// Scratch: working memory of one forward, taken once at load. Layers run one after another and take views from the
// start each time, so the memory is that of the hungriest layer. Measuring is a dry run of the same takes on no memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "kernels/tensor.h"

namespace invar::models {

class Scratch {
 public:
  // Measures: views have no memory and must not be touched.
  Scratch() = default;
  // Holds `bytes`, zeroed.
  explicit Scratch(const int64_t bytes)
      : bytes_(bytes),
        memory_(static_cast<std::byte*>(
            ::operator new (static_cast<size_t>(std::max<int64_t>(bytes, kAlignment)), std::align_val_t{kAlignment}))) {
    std::fill_n(memory_.get(), bytes_, std::byte{0});
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
  struct Free {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{kAlignment}); }
  };

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
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace invar::models
