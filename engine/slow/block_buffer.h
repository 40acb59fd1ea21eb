// BlockBuffer: memory for reads and writes of whole blocks, which O_DIRECT wants aligned. Grows and is kept.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace invar::engine {

// Of files and memory in whole-block I/O: 4 KiB, the page of the system and the largest sector of disks.
inline constexpr int64_t kBlockBytes = 4096;
inline constexpr int64_t WholeBlocks(const int64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

class BlockBuffer {
 public:
  // Makes room for so many bytes; what it held may be gone.
  void Reserve(const int64_t bytes) {
    if (bytes <= bytes_) return;
    memory_.reset();
    bytes_ = WholeBlocks(bytes);
    memory_.reset(static_cast<std::byte*>(::operator new (static_cast<size_t>(bytes_), std::align_val_t{kBlockBytes})));
  }
  std::byte* data() const { return memory_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{kBlockBytes}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  int64_t bytes_ = 0;
};

}  // namespace invar::engine
