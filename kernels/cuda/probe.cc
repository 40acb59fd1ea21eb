// Each probe runs until it takes long beside the launch and the wait that are timed with it, and keeps its best.
#include "kernels/cuda/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

namespace invar::kernels::cuda {
namespace {

constexpr int kRuns = 5;
constexpr double kLongEnough = 2e-3;  // Some hundred times what a launch and a wait take.

// 1e9 units a second; `launch(times)` launches so much work and gives its units.
double Best(Device& device, const std::function<double(int64_t times)>& launch) {
  const auto run = [&](const int64_t times, double& units) {
    device.Finish();
    const auto begin = std::chrono::steady_clock::now();
    units = launch(times);
    device.Finish();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  int64_t times = 1;
  double units = 0.0;
  while (run(times, units) < kLongEnough && times < int64_t{1} << 30) times *= 2;
  double best = 0.0;
  for (int i = 0; i < kRuns; ++i) {
    const double seconds = run(times, units);
    best = std::max(best, units / std::max(seconds, 1e-9) * 1e-9);
  }
  return best;
}

}  // namespace

StatusOr<MachineLimits> MeasureLimits(Device& device) {
  const DeviceSize size = device.size();
  void* const memory = device.Allocate(size.uncached_bytes);
  if (memory == nullptr) {
    return ResourceExhausted(
        fmt::format("wanted {} bytes of the device's memory to measure it, found too little", size.uncached_bytes));
  }
  device.Zero(memory, size.uncached_bytes);
  const int64_t blocks = int64_t{size.multiprocessors} * 8;  // 2,048 threads each: as many as it holds.
  const Stream stream = device.stream();
  const auto bytes = static_cast<double>(size.uncached_bytes);
  MachineLimits limits;
  limits.read_gbps = Best(device, [&](const int64_t times) {
    for (int64_t i = 0; i < times; ++i) ProbeRead(memory, size.uncached_bytes, blocks, memory, stream);
    return bytes * static_cast<double>(times);
  });
  limits.update_gbps = Best(device, [&](const int64_t times) {
    for (int64_t i = 0; i < times; ++i) ProbeUpdate(memory, size.uncached_bytes, blocks, stream);
    return bytes * static_cast<double>(times);
  });
  limits.bf16_gflops =
      Best(device, [&](const int64_t times) { return ProbeProducts(4 * times, blocks, memory, stream); });
  limits.lane_gops = Best(device, [&](const int64_t times) { return ProbeLanes(4 * times, blocks, memory, stream); });
  device.Finish();
  device.Free(memory);
  return limits;
}

}  // namespace invar::kernels::cuda
