// A 64-byte aligned buffer that grows and is reused; contents are undefined after Reserve.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#include "base/check.h"

namespace invar::kernels::cpu {

class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // At least `bytes` bytes, until the next Reserve.
  void* Reserve(const size_t bytes) {
    if (bytes > size_) {
      std::free(data_);
      size_ = (bytes + bytes / 2 + 63) / 64 * 64;
      data_ = std::aligned_alloc(64, size_);
      Check(data_ != nullptr, "memory for kernels' scratch", size_);
    }
    return data_;
  }
  float* Floats(const size_t count) { return static_cast<float*>(Reserve(count * sizeof(float))); }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace invar::kernels::cpu
