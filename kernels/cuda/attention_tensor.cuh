// Attention on tensor cores, for pages of bf16: both products by MultiplyTile
// (m16n8k16), the sixteen rows of a tile at once. Scores: warp w has slots 16 w
// .. 16 w + 15 of a block. Values: warp w has dims 8 (4 j + w) .. + 7. A row's
// weights are 0 where it does not see, so what it does not see enters its sums
// as zeros, which change none: an accumulator begins as +0 and never becomes
// -0. Values must be numbers for that. Slots that no row of the tile sees are
// zeros in shared memory, whatever their page holds; where rows of a tile see
// different slots, values that are no numbers are left out of the product, and
// added by the rows that see them.
#pragma once

#include "kernels/cuda/attention.cuh"

namespace invar::kernels::cuda {

// kTiles of eight dims a warp: head_dim <= 32 * kTiles.
template <int kTiles>
struct TensorAttention : TileWork {
  static constexpr int kWarps = kAttentionThreads / kWarpLanes;
  static constexpr int kWeightPitch = kPageTokens + 8;  // Elements: eight rows of a fragment start in different banks.

  struct Memory {
    uint16_t* q;     // [16][BlockPitch]
    uint16_t* keys;  // [64][BlockPitch]
    uint16_t* values;
    float* scores;      // [16][kWeightPitch]
    uint16_t* weights;  // [16][kWeightPitch]
    float* factors;     // [3][16]: of a block or keep, take, totals.
  };
  __host__ __device__ static Memory Take(SharedArrays& shared, const int64_t dim) {
    const int64_t pitch = BlockPitch<uint16_t>(dim);
    return {shared.Take<uint16_t>(kAttentionTileRows * pitch),
            shared.Take<uint16_t>(kPageTokens * pitch),
            shared.Take<uint16_t>(kPageTokens * pitch),
            shared.Take<float>(kAttentionTileRows * kWeightPitch),
            shared.Take<uint16_t>(kAttentionTileRows * kWeightPitch),
            shared.Take<float>(3 * kAttentionTileRows)};
  }
  // The sum is of the lane's own row (eight lanes a row), values are those of a
  // product's fragment.
  struct Partial {
    RowSum sum = {};
    float values[kTiles][4] = {};
  };

  const Memory memory;

  __device__ TensorAttention(const AttentionLaunch& launch, const DeviceKvSpan& of, const AttentionTile& at,
                             SharedArrays& shared)
      : TileWork(launch, of, at), memory(Take(shared, launch.shape.head_dim)) {
    const int64_t dim = args.shape.head_dim;
    const int64_t pitch = BlockPitch<uint16_t>(dim);
    const auto* q = static_cast<const uint16_t*>(args.q.data) + row.batch_row * args.q.stride + row.head * dim;
    for (int64_t i = Thread() % kRowLanes; i < PaddedDim(dim); i += kRowLanes) {
      memory.q[Thread() / kRowLanes * pitch + i] = row.lives && i < dim ? q[i] : uint16_t{0};
    }
    // Past a head's dims, which the last step of a product takes in.
    const int64_t past = PaddedDim(dim) - dim;
    for (int64_t i = Thread(); i < kPageTokens * past; i += kAttentionThreads) {
      memory.keys[i / past * pitch + dim + i % past] = 0;
    }
  }

  __device__ static uint32_t Pair(const uint16_t* at) { return *reinterpret_cast<const uint32_t*>(at); }
  __device__ static uint32_t Pair(const uint16_t low, const uint16_t high) { return low | uint32_t{high} << 16; }
  // Of rows of `pitch` elements, columns from `k` on.
  __device__ static void LoadRows(const uint16_t* from, const int64_t pitch, const int k, uint32_t (&a)[4]) {
    const uint16_t* at = from + Lane() / 4 * pitch + k + 2 * (Lane() % 4);
    a[0] = Pair(at);
    a[1] = Pair(at + 8 * pitch);
    a[2] = Pair(at + 8);
    a[3] = Pair(at + 8 * pitch + 8);
  }

  __device__ void Score() const {
    constexpr int kSlotTiles = kPageTokens / 8 / kWarps;
    const int64_t pitch = BlockPitch<uint16_t>(args.shape.head_dim);
    float sums[kSlotTiles][4] = {};
    for (int k = 0; k < args.shape.head_dim; k += 16) {
      uint32_t a[4];
      LoadRows(memory.q, pitch, k, a);
#pragma unroll
      for (int j = 0; j < kSlotTiles; ++j) {
        const uint16_t* at = memory.keys + ((Warp() * kSlotTiles + j) * 8 + Lane() / 4) * pitch + k + 2 * (Lane() % 4);
        const uint32_t b[2] = {Pair(at), Pair(at + 8)};
        MultiplyTile(sums[j], a, b);
      }
    }
#pragma unroll
    for (int j = 0; j < kSlotTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int slot = (Warp() * kSlotTiles + j) * 8 + Lane() % 4 * 2 + e % 2;
        memory.scores[(Lane() / 4 + e / 2 * 8) * kWeightPitch + slot] = sums[j][e];
      }
    }
  }

  __device__ void Weights(const int64_t block, RowSum& sum) const {
    const int lane = Thread() % kRowLanes;
    const int tile_row = Thread() / kRowLanes;
    float s[kSlotsPerLane];
#pragma unroll
    for (int m = 0; m < kSlotsPerLane; ++m) s[m] = memory.scores[tile_row * kWeightPitch + lane + kRowLanes * m];
    const float correction = Weigh(args, span, tile, row, block, s, sum);
#pragma unroll
    for (int m = 0; m < kSlotsPerLane; ++m) {
      memory.weights[tile_row * kWeightPitch + lane + kRowLanes * m] = Bf16FromFloat(s[m]);
    }
    if (lane == 0) memory.factors[tile_row] = correction;
  }

  // Halves that are infinite or NaN become zero.
  __device__ static uint32_t Numbers(const uint32_t pair) {
    const uint32_t low = (pair & 0x7f80U) == 0x7f80U ? 0 : pair & 0xffffU;
    return low | ((pair & 0x7f800000U) == 0x7f800000U ? 0 : pair & 0xffff0000U);
  }
  // Some row of the tile does not see all of a block's slots that others see.
  __device__ bool RowsDiffer(const SlotRange& slots, const int64_t block) const {
    const int64_t first_position = span.first_position + tile.first_row / (args.shape.heads / args.shape.kv_heads);
    const int64_t start = block * kPageTokens;
    return first_position - start < slots.last || FirstVisible(args, reach.last) - start > slots.first;
  }

  __device__ __forceinline__ void AddValues(const int64_t block, const SlotRange& slots, Partial& part) const {
    const int64_t dim = args.shape.head_dim;
    const int64_t pitch = BlockPitch<uint16_t>(dim);
    const int g = Lane() / 4;
    const bool differ = RowsDiffer(slots, block);
    const float factors[2] = {memory.factors[g], memory.factors[g + 8]};
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) part.values[j][e] *= factors[e / 2];
    }
    int left_out = 0;
    for (int k = static_cast<int>(slots.first) / 16 * 16; k <= slots.last; k += 16) {
      uint32_t a[4];
      LoadRows(memory.weights, kWeightPitch, k, a);
      const uint16_t* row_at = memory.values + (k + 2 * (Lane() % 4)) * pitch + g;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const int first_dim = (j * kWarps + Warp()) * 8;
        if (first_dim >= dim) continue;  // The whole warp.
        const uint16_t* at = row_at + first_dim;
        uint32_t b[2] = {Pair(at[0], at[pitch]), Pair(at[8 * pitch], at[9 * pitch])};
        if (differ) {
#pragma unroll
          for (uint32_t& pair : b) {
            left_out |= first_dim + g < dim && Numbers(pair) != pair ? 1 : 0;
            pair = Numbers(pair);
          }
        }
        MultiplyTile(part.values[j], a, b);
      }
    }
    if (!differ) return;
    for (int away = kWarpLanes / 2; away > 0; away /= 2) left_out |= FromLaneXor(left_out, away);
    if (left_out != 0) AddLeftOut(block, part);
  }
  __device__ __forceinline__ void AddLeftOut(const int64_t block, Partial& part) const {
    const int64_t pitch = BlockPitch<uint16_t>(args.shape.head_dim);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = Lane() / 4 + 8 * half;
      const OwnRow of = RowOf(args, span, tile, tile_row);
      const SlotRange sees = of.lives ? SlotsOf(of.from, of.position, block) : SlotRange{0, -1};
      const uint16_t* weights = memory.weights + tile_row * kWeightPitch;
#pragma unroll
      for (int n = 0; n < kTiles * 2; ++n) {
        const int64_t i = (n / 2 * kWarps + Warp()) * 8 + Lane() % 4 * 2 + n % 2;
        if (i < args.shape.head_dim) {
          part.values[n / 2][2 * half + n % 2] += LeftOutOf(sees, weights, memory.values + i, pitch);
        }
      }
    }
  }
  // Of what a row sees of a dim, the values that are no numbers, weighted. (A call, so that the loops around it are
  // unrolled and sums stay in registers.)
  __device__ static __noinline__ float LeftOutOf(const SlotRange& sees, const uint16_t* weights, const uint16_t* values,
                                                 const int64_t pitch) {
    float sum = 0.0F;
    for (int64_t slot = sees.first; slot <= sees.last; ++slot) {
      const uint16_t v = values[slot * pitch];
      if (Numbers(v) != v) sum = Fma(FloatFromBf16(weights[slot]), FloatFromBf16(v), sum);
    }
    return sum;
  }

  __device__ __forceinline__ Partial Superblock(const int64_t superblock) const {
    const BlockRange blocks = BlocksOf(reach, superblock);
    Partial part;
    for (int64_t block = blocks.first; block < blocks.end; ++block) {
      const SlotRange slots = SlotsOf(reach.from, reach.last, block);
      BringBlock<uint16_t>(span, tile.kv_head, block, args.shape.head_dim, slots, memory.keys, memory.values);
      SyncBlock();
      Score();
      SyncBlock();
      Weights(block, part.sum);
      SyncBlock();
      AddValues(block, slots, part);
      SyncBlock();  // Before the next block and its factors.
    }
    return part;
  }

  // Factors go from the lanes that have a row to those that have its values.
  __device__ __forceinline__ void Merge(Partial& into, const Partial& from) const {
    const MergeFactors own = MergeSums(into.sum, from.sum);
    const int tile_row = Thread() / kRowLanes;
    if (Thread() % kRowLanes == 0) {
      memory.factors[tile_row] = own.keep;
      memory.factors[kAttentionTileRows + tile_row] = own.take;
    }
    SyncBlock();
    const float* keep = memory.factors + Lane() / 4;
    const float* take = keep + kAttentionTileRows;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        into.values[j][e] = Fma(from.values[j][e], take[e / 2 * 8], into.values[j][e] * keep[e / 2 * 8]);
      }
    }
  }

  // Calls visit(half, dim, value) for all values that this lane has, of row lane / 4 + 8 half of the tile.
  template <typename Visit>
  __device__ void ForEachValue(const Partial& part, const Visit& visit) const {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t i = (j * kWarps + Warp()) * 8 + Lane() % 4 * 2 + e % 2;
        if (i < args.shape.head_dim) visit(e / 2, i, part.values[j][e]);
      }
    }
  }

  __device__ void Finish(const Partial& whole) const {
    float* totals = memory.factors + 2 * kAttentionTileRows;  // Others may still be at the last merge's.
    if (Thread() % kRowLanes == 0) totals[Thread() / kRowLanes] = whole.sum.total;
    SyncBlock();
    const OwnRow first = RowOf(args, span, tile, Lane() / 4);
    const OwnRow second = RowOf(args, span, tile, Lane() / 4 + 8);
    ForEachValue(whole, [&](const int half, const int64_t i, const float value) {
      if (half == 0 && first.lives) StoreOutput(args, first, i, value, totals[Lane() / 4]);
      if (half == 1 && second.lives) StoreOutput(args, second, i, value, totals[Lane() / 4 + 8]);
    });
  }

  __device__ void Store(const Partial& part, float* to) const {
    const int64_t dim = args.shape.head_dim;
    ForEachValue(part, [&](const int half, const int64_t i, const float value) {
      to[(Lane() / 4 + 8 * half) * dim + i] = value;
    });
    if (Thread() % kRowLanes == 0) StoreSum(part.sum, dim, Thread() / kRowLanes, to);
  }
};

}  // namespace invar::kernels::cuda
