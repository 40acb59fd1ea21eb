// A block's event is recorded when the ring leaves it: by then all that was filled in it has been sent and launched.
#include "kernels/cuda/staging_ring.h"

#include "base/check.h"

namespace invar::kernels::cuda {

StagingRing::StagingRing(Device& device, const int32_t blocks, const int64_t block_bytes) : device_(device) {
  Check(blocks > 0 && block_bytes > 0, "a ring has blocks", blocks, block_bytes);
  for (int32_t i = 0; i < blocks; ++i) {
    blocks_.push_back({.passed = device.MakeEvent()});
    Grow(blocks_.back(), block_bytes);
  }
}

StagingRing::~StagingRing() {
  device_.Finish();
  for (Block& block : blocks_) Release(block);
}

StagingRing::Room StagingRing::Take(const int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  const int64_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ + taken > blocks_[current_].bytes) {
    blocks_[current_].passed->Record();
    current_ = (current_ + 1) % blocks_.size();
    Block& block = blocks_[current_];
    block.passed->Await();
    if (taken > block.bytes) {
      Release(block);
      Grow(block, taken + taken / 2);
    }
    used_ = 0;
  }
  const Room& room = blocks_[current_].room;
  const Room given{room.here + used_, room.there + used_};
  used_ += taken;
  return given;
}

void StagingRing::Grow(Block& block, const int64_t bytes) {
  block.room = {static_cast<std::byte*>(device_.AllocatePinned(bytes)),
                static_cast<std::byte*>(device_.Allocate(bytes))};
  Check(block.room.here != nullptr && block.room.there != nullptr, "memory for what launches send", bytes);
  block.bytes = bytes;
  bytes_.fetch_add(2 * bytes, std::memory_order_relaxed);
}

void StagingRing::Release(Block& block) {
  device_.FreePinned(block.room.here);
  device_.Free(block.room.there);
  bytes_.fetch_sub(2 * block.bytes, std::memory_order_relaxed);
}

}  // namespace invar::kernels::cuda
