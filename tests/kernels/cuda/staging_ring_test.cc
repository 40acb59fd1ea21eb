// What is sent through a ring that comes round many times is what was put in, and not without the waits that guard it.
#include "kernels/cuda/staging_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cuda/emulated_device.h"

namespace invar::kernels::cuda {
namespace {

constexpr int32_t kSent = 40;
constexpr int64_t kFirstBytes = 512;

// Numbers that were sent one after another, of which now and then one does not fit a block, as they arrived.
std::vector<int32_t> SendThrough(const EmulatedDeviceOptions& options, int64_t* const waits = nullptr) {
  const std::unique_ptr<Device> device = MakeEmulatedDevice(options, waits);
  StagingRing ring(*device, 2, 2 * kFirstBytes);
  auto* const arrived = static_cast<int32_t*>(device->Allocate(kSent * int64_t{sizeof(int32_t)}));
  for (int32_t i = 0; i < kSent; ++i) {
    const int64_t bytes = i % 9 == 8 ? 3 * kFirstBytes : kFirstBytes;
    const StagingRing::Room room = ring.Take(bytes);
    std::memset(room.here, 0, static_cast<size_t>(bytes));
    auto* const last = reinterpret_cast<int32_t*>(room.here + bytes) - 1;
    *last = i;
    const CopyPiece piece{arrived + i, reinterpret_cast<int32_t*>(room.there + bytes) - 1, sizeof(int32_t)};
    std::memcpy(room.here, &piece, sizeof(piece));
    device->CopyIn(room.there, room.here, bytes);
    Copy({reinterpret_cast<const CopyPiece*>(room.there), 1, piece.bytes}, device->stream());
  }
  std::vector<int32_t> values(kSent);
  device->CopyOut(values.data(), arrived, kSent * int64_t{sizeof(int32_t)});
  device->Free(arrived);
  return values;
}

std::vector<int32_t> Sent() {
  std::vector<int32_t> values;
  for (int32_t i = 0; i < kSent; ++i) values.push_back(i);
  return values;
}

TEST(StagingRing, BringsWhatWasSentHoweverLateTheDeviceIs) {
  EXPECT_EQ(SendThrough({.pace = Pace::kAtOnce}), Sent());
  EXPECT_EQ(SendThrough({.pace = Pace::kAtWaits}), Sent());
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(SendThrough({.pace = Pace::kSeeded, .seed = seed}), Sent());
}

TEST(StagingRing, WaitsForABlockOnlyWhenItComesRoundAgain) {
  int64_t waits = 0;
  SendThrough({.pace = Pace::kAtWaits}, &waits);
  EXPECT_GT(waits, 2);
  EXPECT_LT(waits, kSent / 2 + 2);
}

}  // namespace
}  // namespace invar::kernels::cuda
