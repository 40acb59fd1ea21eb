// The probes' kernels do what they are counted for, and a device's limits come out as numbers.
#include "kernels/cuda/probe.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/emulated_device.h"

namespace invar::kernels::cuda {
namespace {

TEST(Probe, UpdatesEveryWordOnce) {
  const std::unique_ptr<Device> device = MakeEmulatedDevice();
  constexpr int64_t kBytes = 3 * 256 * 16 + 48;  // The last round is a part of one.
  void* const memory = device->Allocate(kBytes);
  device->Zero(memory, kBytes);
  ProbeUpdate(memory, kBytes, 2, device->stream());
  std::vector<uint32_t> words(kBytes / 4);
  device->CopyOut(words.data(), memory, kBytes);
  EXPECT_EQ(words, std::vector<uint32_t>(kBytes / 4, 1));
  device->Free(memory);
}

TEST(Probe, CountsWhatItDoes) {
  const std::unique_ptr<Device> device = MakeEmulatedDevice();
  void* const out = device->Allocate(4);
  // Eight warps with eight tiles of 16 x 8 x 16 each; 256 threads with eight chains each.
  EXPECT_EQ(ProbeProducts(3, 2, out, device->stream()), 2.0 * 16 * 8 * 16 * 8 * 8 * 3 * 2);
  EXPECT_EQ(ProbeLanes(3, 2, out, device->stream()), 256.0 * 8 * 3 * 2);
  device->Finish();
  device->Free(out);
}

TEST(Probe, GivesEveryLimit) {
  const std::unique_ptr<Device> device = MakeEmulatedDevice();
  const StatusOr<MachineLimits> limits = MeasureLimits(*device);
  ASSERT_TRUE(limits.ok());
  EXPECT_GT(limits->read_gbps, 0.0);
  EXPECT_GT(limits->update_gbps, 0.0);
  EXPECT_GT(limits->bf16_gflops, 0.0);
  EXPECT_GT(limits->lane_gops, 0.0);
}

}  // namespace
}  // namespace invar::kernels::cuda
