// What kernels here use of a device, under our own names: the one file that knows CUDA's intrinsics. Compiled by nvcc
// it is the device; by another compiler, the emulation.
//
// Rules that keep emulated and real arithmetic the same, in all but the tensor cores' products: -fmad=false and
// -ffp-contract=off, Fma where fusing is meant; division and root rounded to nearest, denormals kept (nvcc's defaults);
// elementary functions from math.cuh.
// Warps are whole: blocks have a multiple of 32 threads, and all lanes reach every exchange.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>
#else
#include "kernels/cuda/emulation.h"
#endif

#include "kernels/bf16.h"
#include "kernels/tensor.h"

namespace invar::kernels::cuda {

inline constexpr int kWarpLanes = 32;

// As much as a thread reads or writes at once.
struct alignas(16) SixteenBytes {
  uint32_t words[4];
};

// --- Who am I ---
#if defined(__CUDACC__)
__device__ __forceinline__ int Thread() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int Threads() { return static_cast<int>(blockDim.x); }
__device__ __forceinline__ int64_t BlockX() { return blockIdx.x; }
__device__ __forceinline__ int64_t BlockY() { return blockIdx.y; }
__device__ __forceinline__ int64_t BlockZ() { return blockIdx.z; }
#else
inline int Thread() { return emulation::Thread(); }
inline int Threads() { return emulation::Threads(); }
inline int64_t BlockX() { return emulation::Block().x; }
inline int64_t BlockY() { return emulation::Block().y; }
inline int64_t BlockZ() { return emulation::Block().z; }
#endif
__device__ __forceinline__ int Lane() { return Thread() % kWarpLanes; }
__device__ __forceinline__ int Warp() { return Thread() / kWarpLanes; }
__device__ __forceinline__ int Warps() { return Threads() / kWarpLanes; }

// --- Waiting for others ---
#if defined(__CUDACC__)
__device__ __forceinline__ void SyncBlock() { __syncthreads(); }
__device__ __forceinline__ void SyncWarp() { __syncwarp(); }
#else
inline void SyncBlock(const char* file = __builtin_FILE(), const int line = __builtin_LINE()) {
  emulation::WaitForBlock({file, line});
}
inline void SyncWarp(const char* file = __builtin_FILE(), const int line = __builtin_LINE()) {
  emulation::WaitForWarp({file, line});
}
#endif

// --- Values of other lanes ---
#if defined(__CUDACC__)
template <typename T>
__device__ __forceinline__ T FromLane(const T value, const int lane) {
  return __shfl_sync(0xffffffffU, value, lane);
}
template <typename T>
__device__ __forceinline__ T FromLaneXor(const T value, const int mask) {
  return __shfl_xor_sync(0xffffffffU, value, mask);
}
#else
template <typename T>
T FromLane(const T value, const int lane, const char* file = __builtin_FILE(), const int line = __builtin_LINE()) {
  const std::byte* all = emulation::Exchange(&value, sizeof(T), {file, line});
  return *reinterpret_cast<const T*>(all + static_cast<size_t>(lane) * emulation::kLaneBytes);
}
template <typename T>
T FromLaneXor(const T value, const int mask, const char* file = __builtin_FILE(), const int line = __builtin_LINE()) {
  return FromLane(value, Lane() ^ mask, file, line);
}
#endif

// --- Arithmetic ---
__device__ __forceinline__ float Fma(const float a, const float b, const float c) {
#if defined(__CUDACC__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}
__device__ __forceinline__ float SquareRoot(const float x) {
#if defined(__CUDACC__)
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

// Adds to what other threads of the block add to as well; gives what was there. Integers only: of floats the order
// would show.
template <typename T>
__device__ __forceinline__ T AddShared(T* to, const T value) {
  static_assert(std::is_integral_v<T>);
#if defined(__CUDACC__)
  return atomicAdd(to, value);
#else
  const T before = *to;
  *to = before + value;
  return before;
#endif
}

// Product of tensor cores, m16n8k16: c += a b, with a [16, 16] and b [16, 8] of bf16 pairs and c [16, 8] of floats,
// each lane holding what PTX says of mma.sync's fragments (g = lane / 4, t = lane % 4):
//   a: rows g, g + 8, g, g + 8 at columns 2t, 2t, 2t + 8, 2t + 8, pairs     b: rows 2t, 2t + 8 of column g, pairs
//   c: row g at columns 2t, 2t + 1, then row g + 8 there
// Each element of c is a function of its row of a and its column of b alone; the order of its sixteen products is the
// device's own, here k ascending.
#if defined(__CUDACC__)
__device__ __forceinline__ void MultiplyTile(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
inline void MultiplyTile(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         const char* file = __builtin_FILE(), const int line = __builtin_LINE()) {
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const std::byte* all = emulation::Exchange(mine, sizeof(mine), {file, line});
  const auto half = [](const uint32_t pair, const int odd) {
    return FloatFromBf16(static_cast<uint16_t>(odd != 0 ? pair >> 16 : pair));
  };
  for (int i = 0; i < 4; ++i) {
    const int row = Lane() / 4 + i / 2 * 8;
    const int column = Lane() % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const auto words = [&](const int lane) {
        return reinterpret_cast<const uint32_t*>(all + static_cast<size_t>(lane) * emulation::kLaneBytes);
      };
      const int t = k % 8 / 2;
      const uint32_t from_a = words(row % 8 * 4 + t)[row / 8 + k / 8 * 2];
      const uint32_t from_b = words(column * 4 + t)[4 + k / 8];
      c[i] = std::fma(half(from_a, k % 2), half(from_b, k % 2), c[i]);
    }
  }
}
#endif

// --- Shared memory ---
// Gives arrays out of a block's shared memory, one after another, each 16-byte aligned. Run with nothing under it, on
// the host, the same calls say how many bytes a launch needs.
class SharedArrays {
 public:
  __host__ __device__ explicit SharedArrays(std::byte* memory) : memory_(memory) {}

  template <typename T>
  __host__ __device__ T* Take(const int64_t count) {
    Separate();
    std::byte* at = memory_ + bytes_;
    bytes_ += (static_cast<size_t>(count) * sizeof(T) + 15) / 16 * 16;
    return reinterpret_cast<T*>(at);
  }
  // Requires: no Take after it.
  __host__ __device__ size_t bytes() {
    Separate();
    return bytes_;
  }

 private:
  __host__ __device__ void Separate() {
#if !defined(__CUDACC__)
    if (memory_ != nullptr) emulation::Guard(bytes_, emulation::kGuardBytes);
    bytes_ += emulation::kGuardBytes;
#endif
  }

  std::byte* memory_;
  size_t bytes_ = 0;
};

#if defined(__CUDACC__)
__device__ __forceinline__ std::byte* SharedMemory() {
  extern __shared__ uint4 invar_shared_memory[];
  return reinterpret_cast<std::byte*>(invar_shared_memory);
}
#else
inline std::byte* SharedMemory() { return emulation::Shared(); }
#endif

// --- Asynchronous copies into shared memory ---
// 16 bytes, of which `valid` (0 or 16) come from `from` and the rest are zero. Both 16-byte aligned; `from` is not read
// where nothing is valid, but must be an address.
#if defined(__CUDACC__)
__device__ __forceinline__ void StartCopy16(void* to, const void* from, const int valid) {
  __pipeline_memcpy_async(to, from, 16, static_cast<size_t>(16 - valid));
}
__device__ __forceinline__ void CloseCopies() { __pipeline_commit(); }
// Until all but the newest kPending closed groups of this thread have arrived.
template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
  __pipeline_wait_prior(kPending);
}
#else
inline void StartCopy16(void* to, const void* from, const int valid) {
  emulation::StartCopy(to, from, static_cast<size_t>(valid));
}
inline void CloseCopies() { emulation::CloseGroup(); }
template <int kPending>
void WaitForCopies(const char* file = __builtin_FILE(), const int line = __builtin_LINE()) {
  emulation::WaitForGroups(kPending, {file, line});
}
#endif

// --- Rows, in floats and in the type of activations or pages ---
template <typename T>
__device__ __forceinline__ T* Row(const MatrixView<T>& matrix, const int64_t row) {
  return matrix.data + row * matrix.stride;
}
__device__ __forceinline__ void StoreAs(void* out, const int64_t index, const DType dtype, const float y) {
  if (dtype == DType::kBf16) {
    static_cast<uint16_t*>(out)[index] = Bf16FromFloat(y);
  } else {
    static_cast<float*>(out)[index] = y;
  }
}
__device__ __forceinline__ float LoadAs(const void* in, const int64_t index, const DType dtype) {
  return dtype == DType::kBf16 ? FloatFromBf16(static_cast<const uint16_t*>(in)[index])
                               : static_cast<const float*>(in)[index];
}

}  // namespace invar::kernels::cuda
