// Attention with plain fma, for pages of f32. Eight lanes a row, each summing
// the values of dims lane, lane + 8, ...
#pragma once

#include "kernels/cuda/attention.cuh"

namespace invar::kernels::cuda {

// kDims values a lane: head_dim <= 8 * kDims.
template <int kDims>
struct FmaAttention : TileWork {
  struct Memory {
    float* q;        // [16][dim + 1]
    float* weights;  // [16][64]
    float* keys;     // [64][BlockPitch]
    float* values;
  };
  __host__ __device__ static Memory Take(SharedArrays& shared, const int64_t dim) {
    return {shared.Take<float>(kAttentionTileRows * (dim + 1)), shared.Take<float>(kAttentionTileRows * kPageTokens),
            shared.Take<float>(kPageTokens * BlockPitch<float>(dim)),
            shared.Take<float>(kPageTokens * BlockPitch<float>(dim))};
  }
  struct Partial {
    RowSum sum = {};
    float values[kDims] = {};
  };

  const Memory memory;

  __device__ FmaAttention(const AttentionLaunch& launch, const DeviceKvSpan& of, const AttentionTile& at,
                          SharedArrays& shared)
      : TileWork(launch, of, at), memory(Take(shared, launch.shape.head_dim)) {
    const int64_t dim = args.shape.head_dim;
    for (int64_t i = Thread() % kRowLanes; i < dim; i += kRowLanes) {
      const int64_t from = row.batch_row * args.q.stride + row.head * dim + i;
      memory.q[Thread() / kRowLanes * (dim + 1) + i] = row.lives ? LoadAs(args.q.data, from, args.q.dtype) : 0.0F;
    }
  }

  __device__ void AddBlock(const int64_t block, Partial& part) const {
    const int64_t dim = args.shape.head_dim;
    const int64_t pitch = BlockPitch<float>(dim);
    const int lane = Thread() % kRowLanes;
    const int tile_row = Thread() / kRowLanes;
    float s[kSlotsPerLane] = {};
    const float* q = memory.q + tile_row * (dim + 1);
    for (int64_t i = 0; i < dim; ++i) {
#pragma unroll
      for (int m = 0; m < kSlotsPerLane; ++m) s[m] = Fma(q[i], memory.keys[(lane + kRowLanes * m) * pitch + i], s[m]);
    }
    const float correction = Weigh(args, span, tile, row, block, s, part.sum);
    float* weights = memory.weights + tile_row * kPageTokens;
#pragma unroll
    for (int m = 0; m < kSlotsPerLane; ++m) weights[lane + kRowLanes * m] = s[m];
    SyncWarp();
    const SlotRange slots = SlotsOf(row.from, row.position, block);
    if (!row.lives) return;
#pragma unroll
    for (int n = 0; n < kDims; ++n) part.values[n] *= correction;
    for (int64_t j = slots.first; j <= slots.last; ++j) {
      const float* v = memory.values + j * pitch;
#pragma unroll
      for (int n = 0; n < kDims; ++n) {
        const int64_t i = lane + kRowLanes * n;
        if (i < dim) part.values[n] = Fma(weights[j], v[i], part.values[n]);
      }
    }
  }

  __device__ __forceinline__ Partial Superblock(const int64_t superblock) const {
    const BlockRange blocks = BlocksOf(reach, superblock);
    Partial part;
    for (int64_t block = blocks.first; block < blocks.end; ++block) {
      BringBlock<float>(span, tile.kv_head, block, args.shape.head_dim, SlotsOf(reach.from, reach.last, block),
                        memory.keys, memory.values);
      SyncBlock();
      AddBlock(block, part);
      SyncBlock();
    }
    return part;
  }

  __device__ static void Merge(Partial& into, const Partial& from) {
    const MergeFactors factors = MergeSums(into.sum, from.sum);
#pragma unroll
    for (int n = 0; n < kDims; ++n) into.values[n] = Fma(from.values[n], factors.take, into.values[n] * factors.keep);
  }

  __device__ void Finish(const Partial& whole) const {
    if (!row.lives) return;
#pragma unroll
    for (int n = 0; n < kDims; ++n) {
      const int64_t i = Thread() % kRowLanes + kRowLanes * n;
      if (i < args.shape.head_dim) StoreOutput(args, row, i, whole.values[n], whole.sum.total);
    }
  }

  __device__ void Store(const Partial& part, float* to) const {
    const int64_t dim = args.shape.head_dim;
    const int tile_row = Thread() / kRowLanes;
#pragma unroll
    for (int n = 0; n < kDims; ++n) {
      const int64_t i = Thread() % kRowLanes + kRowLanes * n;
      if (i < dim) to[tile_row * dim + i] = part.values[n];
    }
    if (Thread() % kRowLanes == 0) StoreSum(part.sum, dim, tile_row, to);
  }
};

}  // namespace invar::kernels::cuda
