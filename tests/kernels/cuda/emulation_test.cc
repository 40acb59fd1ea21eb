// What the emulation finds, on kernels made for it: each fault is planted and must be named; what is right must run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/worker_pool.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "tests/kernels/rig.h"

namespace invar::kernels::cuda {
namespace {

using emulation::Control;
using emulation::Order;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kThreads = 64;
constexpr Order kOrders[] = {Order::kAscending, Order::kDescending, Order::kStrided};

// Faults are noted while it lives; afterwards all is as it was.
class Noting {
 public:
  Noting() { emulation::control() = {.note_faults = true}; }
  ~Noting() { emulation::control() = {}; }
  std::vector<std::string> faults() const { return emulation::control().faults; }
};

size_t FloatsShared(const int64_t count) {
  SharedArrays shared(nullptr);
  shared.Take<float>(count);
  return shared.bytes();
}

// out[i] = what the thread at the other end wrote.
__global__ void Reverse(float* out) {
  SharedArrays shared(SharedMemory());
  float* values = shared.Take<float>(kThreads);
  values[Thread()] = static_cast<float>(Thread());
  SyncBlock();
  out[BlockX() * kThreads + Thread()] = values[kThreads - 1 - Thread()];
}

std::vector<float> RunReverse(const int64_t blocks = 1) {
  std::vector<float> out(blocks * kThreads);
  Launch("reverse", Reverse, {{blocks}, kThreads, FloatsShared(kThreads)}, nullptr, out.data());
  return out;
}

TEST(Emulation, ThreadsOfABlockMeetInEveryOrder) {
  for (const Order order : kOrders) {
    emulation::control().order = order;
    const std::vector<float> out = RunReverse(3);
    for (int64_t i = 0; i < 3 * kThreads; ++i) EXPECT_EQ(out[i], static_cast<float>(kThreads - 1 - i % kThreads));
  }
  emulation::control() = {};
}

TEST(Emulation, ARemovedBarrierShowsAsWhatWasNotWritten) {
  const Noting noting;
  emulation::control().record_places = true;
  RunReverse();
  ASSERT_EQ(emulation::control().places.size(), 1U);
  EXPECT_THAT(emulation::NameOf(emulation::control().places[0]), HasSubstr("emulation_test.cc:"));
  emulation::control().removed = emulation::control().places[0];
  const std::vector<float> out = RunReverse();
  EXPECT_TRUE(std::isnan(out[0])) << "the first thread reads before the last has run";
  EXPECT_TRUE(noting.faults().empty());
}

__global__ void HalfWaits() {
  if (Thread() < 40) SyncBlock();
}
__global__ void WaitsElsewhere() {
  if (Thread() < kWarpLanes) {
    SyncBlock();
  } else {
    SyncBlock();
  }
}
__global__ void HalfAWarpExchanges(float* out) {
  if (Lane() < 16) out[Thread()] = FromLaneXor(1.0F, 1);
}

TEST(Emulation, PartedThreadsAreNamedWithKernelBlockAndPlaces) {
  const Noting noting;
  Launch("half_waits", HalfWaits, {{1, 2}, kThreads, 0}, nullptr);
  ASSERT_EQ(noting.faults().size(), 1U) << "the rest of the grid is given up";
  EXPECT_THAT(noting.faults()[0], HasSubstr("half_waits, block 0 0 0: threads 0 and 40 have parted"));
  EXPECT_THAT(noting.faults()[0], HasSubstr("the other at the end"));
  Launch("waits_elsewhere", WaitsElsewhere, {{1}, kThreads, 0}, nullptr);
  ASSERT_EQ(noting.faults().size(), 2U);
  EXPECT_THAT(noting.faults()[1], HasSubstr("threads 0 and 32 have parted: one is at emulation_test.cc:"));
  std::vector<float> out(kThreads);
  Launch("half_a_warp", HalfAWarpExchanges, {{1}, kThreads, 0}, nullptr, out.data());
  ASSERT_EQ(noting.faults().size(), 3U);
  EXPECT_THAT(noting.faults()[2], HasSubstr("threads 0 and 16 have parted"));
  // And afterwards all works as before.
  EXPECT_EQ(RunReverse()[0], static_cast<float>(kThreads - 1));
}

__global__ void WritesAt(const int64_t first, const int64_t second) {
  SharedArrays shared(SharedMemory());
  float* a = shared.Take<float>(kThreads);
  float* b = shared.Take<float>(kThreads);
  if (Thread() != 0) return;
  a[first] = 1.0F;
  b[second] = 1.0F;
}

TEST(Emulation, WritesAroundASharedArrayAreSeen) {
  const Noting noting;
  SharedArrays shared(nullptr);
  shared.Take<float>(kThreads);
  shared.Take<float>(kThreads);
  const size_t bytes = shared.bytes();
  const auto run = [&](const int64_t first, const int64_t second) {
    Launch("writes_at", WritesAt, {{1}, kThreads, bytes}, nullptr, first, second);
    return emulation::control().faults.size();
  };
  EXPECT_EQ(run(kThreads - 1, 0), 0U);
  EXPECT_EQ(run(kThreads, 0), 1U);
  EXPECT_EQ(run(-1, 0), 2U);
  EXPECT_EQ(run(0, kThreads), 3U);
  EXPECT_THAT(emulation::control().faults[0], HasSubstr("wrote outside a shared array"));
}

__global__ void TakesMore(float* out) {
  SharedArrays shared(SharedMemory());
  out[Thread()] = shared.Take<float>(4 * kThreads)[Thread()];
  shared.Take<float>(1);
}

TEST(EmulationDeathTest, FaultsEndTheProcessUnlessNoted) {
  std::vector<float> out(kThreads);
  EXPECT_DEATH(Launch("takes_more", TakesMore, {{1}, kThreads, FloatsShared(kThreads)}, nullptr, out.data()),
               "shared arrays fit what the launch asked for . takes_more");
  EXPECT_DEATH(Launch("half_waits", HalfWaits, {{1}, kThreads, 0}, nullptr),
               "without fault: . half_waits, block 0 0 0");
  EXPECT_DEATH(Launch("odd", HalfWaits, {{1}, 33, 0}, nullptr), "a block has whole warps");
}

// Copies row after row through two buffers; waits for all but `pending` groups.
template <int kPending>
__global__ void CopyThrough(const float* from, float* out) {
  SharedArrays shared(SharedMemory());
  float* at = shared.Take<float>(8);
  StartCopy16(at, from, 16);
  CloseCopies();
  StartCopy16(at + 4, from + 4, 0);
  CloseCopies();
  WaitForCopies<kPending>();
  if (Thread() == 0) {
    for (int i = 0; i < 8; ++i) out[i] = at[i];
  }
}

TEST(Emulation, AnAsynchronousCopyArrivesWhenItIsWaitedFor) {
  alignas(16) const float from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> out(8);
  const auto run = [&](void (*kernel)(const float*, float*)) {
    Launch("copy", kernel, {{1}, kWarpLanes, FloatsShared(8)}, nullptr, from, out.data());
  };
  run(CopyThrough<0>);
  EXPECT_THAT(out, ElementsAre(1, 2, 3, 4, 0, 0, 0, 0));
  run(CopyThrough<1>);
  EXPECT_EQ(out[3], 4.0F);
  EXPECT_TRUE(std::isnan(out[4]));
  run(CopyThrough<2>);
  EXPECT_TRUE(std::isnan(out[0]));
}

// One product of a warp, from plain matrices.
__global__ void OneProduct(const uint16_t* a, const uint16_t* b, float* c) {
  const int g = Lane() / 4;
  const int t = Lane() % 4;
  const auto pair = [](const uint16_t* at) { return at[0] | static_cast<uint32_t>(at[1]) << 16; };
  const uint32_t of_a[4] = {pair(a + g * 16 + 2 * t), pair(a + (g + 8) * 16 + 2 * t), pair(a + g * 16 + 2 * t + 8),
                            pair(a + (g + 8) * 16 + 2 * t + 8)};
  const uint32_t of_b[2] = {pair(b + g * 16 + 2 * t), pair(b + g * 16 + 2 * t + 8)};
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  MultiplyTile(sums, of_a, of_b);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

TEST(Emulation, TheProductOfAWarpIsThatOfItsMatrices) {
  const std::vector<float> a = RandomBf16Floats(16 * 16, 1);
  const std::vector<float> b = RandomBf16Floats(8 * 16, 2);  // Column after column.
  std::vector<float> c = RandomFloats(16 * 8, 3);
  std::vector<float> want = c;
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float& sum = want[row * 8 + column];
      for (int k = 0; k < 16; ++k) sum = std::fma(a[row * 16 + k], b[column * 16 + k], sum);
    }
  }
  Launch("one_product", OneProduct, {{1}, kWarpLanes, 0}, nullptr, Rounded(a).data(), Rounded(b).data(), c.data());
  EXPECT_EQ(BitsOf(c), BitsOf(want));
}

__global__ void SumsAndMaxima(const float* in, float* out) {
  SharedArrays shared(SharedMemory());
  float* warps = shared.Take<float>(kThreads / kWarpLanes);
  const float x = in[Thread()];
  const float block = BlockSum(x, warps);
  out[Thread() * 3] = block;
  out[Thread() * 3 + 1] = GroupSum<4>(x);
  out[Thread() * 3 + 2] = WarpMax(x);
}

TEST(Emulation, ReductionsGiveEveryLaneTheSameBits) {
  const std::vector<float> in = RandomFloats(kThreads, 4);
  std::vector<float> out(3 * kThreads);
  Launch("sums", SumsAndMaxima, {{1}, kThreads, FloatsShared(kThreads / kWarpLanes)}, nullptr, in.data(), out.data());
  double sum = 0.0;
  for (const float x : in) sum += x;
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(out[3 * i], out[0]);
    EXPECT_EQ(out[3 * i + 1], out[3 * (i / 4 * 4) + 1]);
    const auto warp = in.begin() + i / kWarpLanes * kWarpLanes;
    EXPECT_EQ(out[3 * i + 2], *std::max_element(warp, warp + kWarpLanes));
  }
  EXPECT_NEAR(out[0], sum, 1e-5);
}

__global__ void Halve(float* x) {
  if (Thread() == 0) *x = *x * 0.5F;
}

TEST(Emulation, KeepsDenormalsAsADeviceDoes) {
  const FlushDenormals flush;
  float x = 0x1p-126F;
  Launch("halve", Halve, {{1}, kWarpLanes, 0}, nullptr, &x);
  EXPECT_EQ(BitsOf({x}), (std::vector<uint32_t>{1U << 22}));
  volatile float y = 0x1p-126F;
  y = y * 0.5F;
  EXPECT_EQ(y, 0.0F) << "the caller's own mode is back";
}

TEST(Emulation, AnEmptyGridRunsNothing) {
  Launch("nothing", HalfWaits, {{0}, kThreads, 0}, nullptr);
  Launch("nothing", HalfWaits, {{1, 0}, kThreads, 0}, nullptr);
}

}  // namespace
}  // namespace invar::kernels::cuda
