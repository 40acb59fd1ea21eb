// Sums and maxima over lanes, in one tree: partners 16, 8, 4, 2 and 1 lanes away. Addition commutes, so every lane gets
// the same bits.
#pragma once

#include "kernels/cuda/device_ops.cuh"

namespace invar::kernels::cuda {

// Over groups of kLanes neighbouring lanes.
template <int kLanes>
__device__ __forceinline__ float GroupSum(float x) {
#pragma unroll
  for (int away = kLanes / 2; away > 0; away /= 2) x += FromLaneXor(x, away);
  return x;
}
template <int kLanes>
__device__ __forceinline__ float GroupMax(float x) {
#pragma unroll
  for (int away = kLanes / 2; away > 0; away /= 2) {
    const float other = FromLaneXor(x, away);
    x = other > x ? other : x;
  }
  return x;
}
__device__ __forceinline__ float WarpSum(const float x) { return GroupSum<kWarpLanes>(x); }
__device__ __forceinline__ float WarpMax(const float x) { return GroupMax<kWarpLanes>(x); }

// Over the block: warps' sums are added ascending. `shared`: a float a warp, used by no one else until the block's next
// wait after it.
__device__ __forceinline__ float BlockSum(const float x, float* shared) {
  const float own = WarpSum(x);
  if (Lane() == 0) shared[Warp()] = own;
  SyncBlock();
  float sum = 0.0F;
  for (int w = 0; w < Warps(); ++w) sum += shared[w];
  return sum;
}

}  // namespace invar::kernels::cuda
