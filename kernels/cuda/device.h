// One device as the backend sees it: memory and a stream. Kinds: a GPU (cuda_device.cu, in the module) and the
// emulation (emulated_device.cc, in tests).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/check.h"
#include "kernels/cuda/ops.h"

namespace invar::kernels::cuda {

// A moment of a device's stream. The device outlives it.
class Event {
 public:
  virtual ~Event() = default;
  // Behind all that was launched.
  virtual void Record() = 0;
  // Returns when the stream has passed the moment recorded last; at once where there is none.
  virtual void Await() = 0;
};

// What probes go by. Kernels never see it: an order of sums must not depend on it.
struct DeviceSize {
  int32_t multiprocessors = 1;
  int64_t uncached_bytes = 0;  // Several times what its caches hold.
};

class Device {
 public:
  virtual ~Device() = default;

  // What numerics call it: results of two devices are comparable in bits only under one name.
  virtual std::string numerics_name() const = 0;
  virtual DeviceSize size() const = 0;
  virtual Stream stream() const = 0;

  // Of the device alone, 256-byte aligned; the host must not touch it. Null: there is not enough. What is given back
  // may not be in use: the stream has passed it.
  virtual void* Allocate(int64_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // The host's memory, pinned: kernels find it under the same address, and copies from and to it are asynchronous.
  // 256-byte aligned. Null: there is not enough.
  virtual void* AllocatePinned(int64_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

  // In the stream's order. `from` is the host's, and stays as it is until that was done.
  virtual void CopyIn(void* to, const void* from, int64_t bytes) = 0;
  virtual void Zero(void* memory, int64_t bytes) = 0;
  // Returns when `to`, in the host's memory, has the bytes, and all that was launched before is done.
  virtual void CopyOut(void* to, const void* from, int64_t bytes) = 0;
  virtual std::unique_ptr<Event> MakeEvent() = 0;
  // Returns when all that was launched is done.
  virtual void Finish() = 0;
};

// A buffer of a device that grows and is reused; contents are undefined after Reserve. What runs on the stream may
// still read the old one, so growing waits for it.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(Device& device) : device_(device) {}
  ~DeviceBuffer() {
    if (data_ == nullptr) return;
    device_.Finish();
    device_.Free(data_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* Reserve(const int64_t bytes) {
    if (bytes <= bytes_.load(std::memory_order_relaxed)) return data_;
    if (data_ != nullptr) {
      device_.Finish();
      device_.Free(data_);
    }
    data_ = device_.Allocate(bytes + bytes / 2);
    Check(data_ != nullptr, "memory of the device for kernels' scratch", bytes);
    bytes_.store(bytes + bytes / 2, std::memory_order_relaxed);
    return data_;
  }
  // Held now. Threads: any.
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  Device& device_;
  void* data_ = nullptr;
  std::atomic<int64_t> bytes_ = 0;  // Written by the one user; read by who counts.
};

}  // namespace invar::kernels::cuda
