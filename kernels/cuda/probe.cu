// What a device can do at most: reading its memory, updating it in place, tensor cores' products and fused
// multiply-adds on registers. Sums leave a block only where they are of no value that occurs, so that nothing is left
// out.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/probe.h"

namespace invar::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChains = 8;  // Independent ones a thread: as many as hide an operation's latency at 8 warps a block.

__global__ void ReadAll(const SixteenBytes* from, const int64_t count, const int64_t stride, uint32_t* out) {
  uint32_t seen = 0;
  for (int64_t i = BlockX() * kThreads + Thread(); i < count; i += stride) {
    const SixteenBytes value = from[i];
    seen |= value.words[0] | value.words[1] | value.words[2] | value.words[3];
  }
  if (seen == 0xdeadbeefU) out[0] = seen;
}

__global__ void UpdateAll(SixteenBytes* memory, const int64_t count, const int64_t stride) {
  for (int64_t i = BlockX() * kThreads + Thread(); i < count; i += stride) {
    SixteenBytes value = memory[i];
    for (uint32_t& word : value.words) ++word;
    memory[i] = value;
  }
}

__global__ void MultiplyTiles(const int64_t rounds, float* out) {
  const uint32_t a[4] = {0x3f803f80U, 0x3f803f80U, 0x3f803f80U, 0x3f803f80U};  // Ones.
  const uint32_t b[2] = {0x3f803f80U, 0x3f803f80U};
  float c[kChains][4] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) MultiplyTile(c[chain], a, b);
  }
  float sum = 0.0F;
  for (const auto& chain : c) sum += chain[0] + chain[1] + chain[2] + chain[3];
  if (sum < 0.0F) out[0] = sum;
}

__global__ void MultiplyAdd(const int64_t rounds, float* out) {
  float c[kChains];
  for (int chain = 0; chain < kChains; ++chain) c[chain] = static_cast<float>(Thread() + chain);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) c[chain] = Fma(c[chain], 0.5F, 1.0F);
  }
  float sum = 0.0F;
  for (const float value : c) sum += value;
  if (sum < 0.0F) out[0] = sum;
}

}  // namespace

void ProbeRead(const void* memory, const int64_t bytes, const int64_t blocks, void* out, const Stream stream) {
  Launch("probe_read", ReadAll, {{blocks}, kThreads, 0}, stream, static_cast<const SixteenBytes*>(memory), bytes / 16,
         blocks * kThreads, static_cast<uint32_t*>(out));
}

void ProbeUpdate(void* memory, const int64_t bytes, const int64_t blocks, const Stream stream) {
  Launch("probe_update", UpdateAll, {{blocks}, kThreads, 0}, stream, static_cast<SixteenBytes*>(memory), bytes / 16,
         blocks * kThreads);
}

double ProbeProducts(const int64_t rounds, const int64_t blocks, void* out, const Stream stream) {
  Launch("probe_products", MultiplyTiles, {{blocks}, kThreads, 0}, stream, rounds, static_cast<float*>(out));
  constexpr double kFlops = 2.0 * 16 * 8 * 16;  // Of a tile.
  return kFlops * kChains * (kThreads / kWarpLanes) * static_cast<double>(rounds * blocks);
}

double ProbeLanes(const int64_t rounds, const int64_t blocks, void* out, const Stream stream) {
  Launch("probe_lanes", MultiplyAdd, {{blocks}, kThreads, 0}, stream, rounds, static_cast<float*>(out));
  return static_cast<double>(kChains) * kThreads * static_cast<double>(rounds * blocks);
}

}  // namespace invar::kernels::cuda
