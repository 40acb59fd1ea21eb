// StagingRing: what the host sends along with launches (spans, page tables, lists) on its way to the device, without a
// wait for it. Blocks of pinned memory, each with as much of the device's, are filled one after another; one that comes
// round again is written when the device has passed all that used it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"

namespace invar::kernels::cuda {

class StagingRing {
 public:
  // A step of a model of 60 layers sends some 300 arrays of a few KiB: with this many, the host runs ahead by about a
  // step before it waits.
  static constexpr int32_t kBlocks = 4;
  static constexpr int64_t kBlockBytes = int64_t{256} << 10;

  struct Room {
    std::byte* here = nullptr;   // The host's.
    std::byte* there = nullptr;  // The device's.
  };

  // Requires: `device` outlives this.
  explicit StagingRing(Device& device, int32_t blocks = kBlocks, int64_t block_bytes = kBlockBytes);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  // 256-byte aligned, to be filled and sent at once: it is used until the launches before the next Take have run.
  Room Take(int64_t bytes);
  // Held now, on both sides. Threads: any.
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Block {
    Room room = {};
    int64_t bytes = 0;
    std::unique_ptr<Event> passed = nullptr;
  };
  void Grow(Block& block, int64_t bytes);
  void Release(Block& block);

  Device& device_;
  std::vector<Block> blocks_;
  size_t current_ = 0;
  int64_t used_ = 0;  // Of the current block.
  std::atomic<int64_t> bytes_ = 0;
};

}  // namespace invar::kernels::cuda
