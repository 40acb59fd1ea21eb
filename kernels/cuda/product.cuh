// Tiles of out = x W^T for a block of 128 threads, in two forms:
//   bf16 x bf16   tensor cores, m16n8k16
//   f32 x f32, f32 x bf16   one fma a product
// x [rows, k] row-major, in any stride    W [n, PackedStride(k)] row-major, zero past k    out [rows, n] f32
// Order: one accumulator an element, k ascending (in steps of 16 on tensor cores). Tiles of any height and width give
// the same bits, so a launcher is free in choosing them.
#pragma once

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/ops.h"

namespace invar::kernels::cuda {

inline constexpr int kProductThreads = 128;
inline constexpr int kProductWarps = kProductThreads / kWarpLanes;

// One product as a tile sees it.
struct ProductTile {
  const void* x = nullptr;
  DType x_dtype = DType::kBf16;
  int64_t x_stride = 0;
  const int32_t* x_rows = nullptr;  // Row r of the product is row x_rows[r] of x; null: row r.
  int64_t rows = 0;
  const void* weight = nullptr;
  DType weight_dtype = DType::kBf16;
  int64_t n = 0;
  int64_t k = 0;
  const float* bias = nullptr;
  bool add = false;
  float* out = nullptr;
  int64_t out_stride = 0;
};

__device__ __forceinline__ int64_t SourceRow(const ProductTile& p, const int64_t row) {
  return p.x_rows != nullptr ? p.x_rows[row] : row;
}

__device__ __forceinline__ void StoreProduct(const ProductTile& p, const int64_t row, const int64_t column,
                                             const float sum) {
  if (row >= p.rows || column >= p.n) return;
  float& to = p.out[row * p.out_stride + column];
  const float y = p.bias != nullptr ? sum + p.bias[column] : sum;
  to = p.add ? to + y : y;
}

// --- Tensor cores ---
// kRowTiles times 16 rows; four warps side by side, kColumnTiles times 8 columns each.
template <int kRowTiles, int kColumnTiles>
struct TensorTile {
  static constexpr int kRows = kRowTiles * 16;
  static constexpr int kColumns = kProductWarps * kColumnTiles * 8;
  static constexpr int kStep = kPackedUnit;  // Of k: two products deep.
  // Of a row in shared memory, in elements: 80 bytes, so that the eight rows of a fragment start in different banks.
  static constexpr int kPitch = kStep + 8;
  static constexpr int kStages = 2;

  struct Memory {
    uint16_t* x;  // [kStages][kRows][kPitch]
    uint16_t* w;  // [kStages][kColumns][kPitch]
  };
  __host__ __device__ static Memory Take(SharedArrays& shared) {
    return {shared.Take<uint16_t>(kStages * kRows * kPitch), shared.Take<uint16_t>(kStages * kColumns * kPitch)};
  }

  // 16 bytes can be copied at a time.
  __device__ static bool IsWide(const ProductTile& p) {
    return p.k % 8 == 0 && p.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(p.x) % 16 == 0;
  }

  __device__ static void Fetch(const ProductTile& p, const bool wide, const int64_t row_begin,
                               const int64_t column_begin, const int64_t k, uint16_t* x, uint16_t* w) {
    constexpr int kPieces = kStep / 8;
    const auto* from_w = static_cast<const uint16_t*>(p.weight);
    for (int i = Thread(); i < kColumns * kPieces; i += kProductThreads) {
      const int64_t column = column_begin + i / kPieces;
      const bool valid = column < p.n;
      const int64_t at = (valid ? column : 0) * PackedStride(p.k) + k + i % kPieces * 8;
      StartCopy16(w + i / kPieces * kPitch + i % kPieces * 8, from_w + at, valid ? 16 : 0);
    }
    const auto* from_x = static_cast<const uint16_t*>(p.x);
    if (wide) {
      for (int i = Thread(); i < kRows * kPieces; i += kProductThreads) {
        const int64_t row = row_begin + i / kPieces;
        const int64_t column = k + i % kPieces * 8;
        const bool valid = row < p.rows && column < p.k;
        const int64_t at = valid ? SourceRow(p, row) * p.x_stride + column : 0;
        StartCopy16(x + i / kPieces * kPitch + i % kPieces * 8, from_x + at, valid ? 16 : 0);
      }
      return;
    }
    for (int i = Thread(); i < kRows * kStep; i += kProductThreads) {
      const int64_t row = row_begin + i / kStep;
      const int64_t column = k + i % kStep;
      const bool valid = row < p.rows && column < p.k;
      x[i / kStep * kPitch + i % kStep] = valid ? from_x[SourceRow(p, row) * p.x_stride + column] : uint16_t{0};
    }
  }

  __device__ static uint32_t Pair(const uint16_t* at) { return *reinterpret_cast<const uint32_t*>(at); }

  __device__ static void Multiply(const uint16_t* x, const uint16_t* w, float (&sums)[kRowTiles][kColumnTiles][4]) {
    const int g = Lane() / 4;
    const int t = Lane() % 4;
#pragma unroll
    for (int k = 0; k < kStep; k += 16) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        const uint16_t* at = x + (i * 16 + g) * kPitch + k + 2 * t;
        a[i][0] = Pair(at);
        a[i][1] = Pair(at + 8 * kPitch);
        a[i][2] = Pair(at + 8);
        a[i][3] = Pair(at + 8 * kPitch + 8);
      }
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        const uint16_t* at = w + ((Warp() * kColumnTiles + j) * 8 + g) * kPitch + k + 2 * t;
        const uint32_t b[2] = {Pair(at), Pair(at + 8)};
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) MultiplyTile(sums[i][j], a[i], b);
      }
    }
  }

  __device__ static void Run(const ProductTile& p, const Memory& memory, const int64_t row_begin,
                             const int64_t column_begin) {
    const bool wide = IsWide(p);
    float sums[kRowTiles][kColumnTiles][4] = {};
    const auto fetch = [&](const int64_t step) {
      const int64_t stage = step % kStages;
      Fetch(p, wide, row_begin, column_begin, step * kStep, memory.x + stage * kRows * kPitch,
            memory.w + stage * kColumns * kPitch);
    };
    const int64_t steps = (p.k + kStep - 1) / kStep;
    fetch(0);
    CloseCopies();
    for (int64_t step = 0; step < steps; ++step) {
      if (step + 1 < steps) fetch(step + 1);
      CloseCopies();
      WaitForCopies<1>();
      SyncBlock();
      const int64_t stage = step % kStages;
      Multiply(memory.x + stage * kRows * kPitch, memory.w + stage * kColumns * kPitch, sums);
      SyncBlock();
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          StoreProduct(p, row_begin + i * 16 + Lane() / 4 + e / 2 * 8,
                       column_begin + (Warp() * kColumnTiles + j) * 8 + Lane() % 4 * 2 + e % 2, sums[i][j][e]);
        }
      }
    }
  }
};

// --- Plain fma ---
struct FmaTile {
  static constexpr int kRows = 32;
  static constexpr int kColumns = 32;
  static constexpr int kStep = kPackedUnit;
  static constexpr int kPitch = kStep + 1;  // Columns of a step lie in different banks.
  static constexpr int kRowsPerThread = kRows / kProductWarps;

  struct Memory {
    float* x;  // [kRows][kPitch]
    float* w;  // [kColumns][kPitch]
  };
  __host__ __device__ static Memory Take(SharedArrays& shared) {
    return {shared.Take<float>(kRows * kPitch), shared.Take<float>(kColumns * kPitch)};
  }

  __device__ static void Run(const ProductTile& p, const Memory& memory, const int64_t row_begin,
                             const int64_t column_begin) {
    float sums[kRowsPerThread] = {};
    for (int64_t k = 0; k < p.k; k += kStep) {
      for (int i = Thread(); i < kRows * kStep; i += kProductThreads) {
        const int64_t row = row_begin + i / kStep;
        const int64_t column = k + i % kStep;
        const bool valid = row < p.rows && column < p.k;
        memory.x[i / kStep * kPitch + i % kStep] =
            valid ? LoadAs(p.x, SourceRow(p, row) * p.x_stride + column, p.x_dtype) : 0.0F;
      }
      for (int i = Thread(); i < kColumns * kStep; i += kProductThreads) {
        const int64_t column = column_begin + i / kStep;
        memory.w[i / kStep * kPitch + i % kStep] =
            column < p.n ? LoadAs(p.weight, column * PackedStride(p.k) + k + i % kStep, p.weight_dtype) : 0.0F;
      }
      SyncBlock();
      for (int i = 0; i < kStep; ++i) {
        const float w = memory.w[Lane() * kPitch + i];
#pragma unroll
        for (int r = 0; r < kRowsPerThread; ++r) {
          sums[r] = Fma(memory.x[(Warp() * kRowsPerThread + r) * kPitch + i], w, sums[r]);
        }
      }
      SyncBlock();
    }
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) {
      StoreProduct(p, row_begin + Warp() * kRowsPerThread + r, column_begin + Lane(), sums[r]);
    }
  }
};

// Few rows: what comes from memory is weights, so blocks are narrow and many.
using FewRowsTile = TensorTile<1, 1>;
using ManyRowsTile = TensorTile<4, 4>;
inline constexpr int64_t kFewRows = 16;

// Shared memory that a tile needs.
template <typename Tile>
size_t SharedBytesOf() {
  SharedArrays shared(nullptr);
  Tile::Take(shared);
  return shared.bytes();
}

}  // namespace invar::kernels::cuda
