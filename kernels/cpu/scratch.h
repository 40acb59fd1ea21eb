// A 64-byte aligned buffer that grows and is reused; contents are undefined after Reserve.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
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
    if (bytes > size_.load(std::memory_order_relaxed)) {
      std::free(data_);
      const size_t size = (bytes + bytes / 2 + 63) / 64 * 64;
      size_.store(size, std::memory_order_relaxed);
      data_ = std::aligned_alloc(64, size);
      Check(data_ != nullptr, "memory for kernels' scratch", size);
    }
    return data_;
  }
  // Held now. Threads: any.
  int64_t bytes() const { return static_cast<int64_t>(size_.load(std::memory_order_relaxed)); }
  float* Floats(const size_t count) { return static_cast<float*>(Reserve(count * sizeof(float))); }

 private:
  void* data_ = nullptr;
  std::atomic<size_t> size_ = 0;  // Written by the one user; read by who counts.
};

}  // namespace invar::kernels::cpu
