// Without tensor cores a device does what the emulation does, operation by operation: equal bits. With them, its
// products are its own; then at least each of its runs must give the same.
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/bits.h"

namespace invar::kernels {
namespace {

TEST(DeviceBits, OfFloatsAreThoseOfTheEmulation) {
  const Rig device({"cuda", "", DType::kF32});
  Rig emulated({"cuda", "", DType::kF32}, 1);
  emulated.backend = cuda::MakeCudaBackend(cuda::MakeEmulatedDevice(), nullptr, DType::kF32, emulated.pool).value();
  const Results got = RunEverything(device);
  const Results want = RunEverything(emulated);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]) << "result " << i;
}

TEST(DeviceBits, AreTheSameInEveryRun) {
  const Rig device({"cuda", "", DType::kBf16});
  const Results want = RunEverything(device);
  for (int run = 0; run < 5; ++run) EXPECT_EQ(RunEverything(device), want);
}

}  // namespace
}  // namespace invar::kernels
