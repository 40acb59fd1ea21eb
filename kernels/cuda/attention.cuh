// What the two kernels of attention share: who a row is, which blocks a tile
// walks, and how scores of a block become weights. Eight neighbouring lanes
// have a row of a tile; each keeps the row's maximum and total.
#pragma once

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/kv_page.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/numerics.h"

namespace invar::kernels::cuda {

inline constexpr int kAttentionThreads = 128;
inline constexpr int kRowLanes = kAttentionThreads / kAttentionTileRows;  // Lanes that share a row: 8.
inline constexpr int kSlotsPerLane = kPageTokens / kRowLanes;
inline constexpr int kBlocksOfSuperblock = kSuperblockTokens / kPageTokens;

// One lane's row.
struct OwnRow {
  int64_t index = 0;  // In the span.
  int64_t batch_row = 0;
  int64_t head = 0;
  int64_t position = 0;
  int64_t from = 0;    // First visible position.
  bool lives = false;  // The last tile of a span may have rows too many.
};

__device__ __forceinline__ int64_t FirstVisible(const AttentionLaunch& args, const int64_t position) {
  return args.shape.window > 0 && position >= args.shape.window ? position - args.shape.window + 1 : 0;
}

__device__ __forceinline__ OwnRow RowOf(const AttentionLaunch& args, const DeviceKvSpan& span,
                                        const AttentionTile& tile, const int tile_row) {
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  OwnRow row;
  row.index = tile.first_row + tile_row;
  row.lives = row.index < span.rows * group;
  const int64_t token = row.lives ? row.index / group : 0;
  row.batch_row = span.row_begin + token;
  row.head = tile.kv_head * group + row.index % group;
  row.position = span.first_position + token;
  row.from = FirstVisible(args, row.position);
  return row;
}

// What the rows of a tile see between them.
struct TileReach {
  int64_t from = 0;
  int64_t last = 0;
};
__device__ __forceinline__ TileReach ReachOf(const AttentionLaunch& args, const DeviceKvSpan& span,
                                             const AttentionTile& tile) {
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  const int64_t rows = span.rows * group;
  const int64_t end = tile.first_row + kAttentionTileRows < rows ? tile.first_row + kAttentionTileRows : rows;
  return {FirstVisible(args, span.first_position + tile.first_row / group), span.first_position + (end - 1) / group};
}

// What a block of threads works on, and the row of each eight lanes.
struct TileWork {
  const AttentionLaunch& args;
  const DeviceKvSpan& span;
  const AttentionTile& tile;
  const OwnRow row;
  const TileReach reach;

  __device__ TileWork(const AttentionLaunch& launch, const DeviceKvSpan& of, const AttentionTile& at)
      : args(launch),
        span(of),
        tile(at),
        row(RowOf(launch, of, at, Thread() / kRowLanes)),
        reach(ReachOf(launch, of, at)) {}
};

// Blocks [first, end) of a superblock that a tile walks.
struct BlockRange {
  int64_t first = 0;
  int64_t end = 0;
};
__device__ __forceinline__ BlockRange BlocksOf(const TileReach& reach, const int64_t superblock) {
  const int64_t begin = superblock * kBlocksOfSuperblock;
  const int64_t first = reach.from / kPageTokens;
  const int64_t past = reach.last / kPageTokens + 1;
  return {first > begin ? first : begin, past < begin + kBlocksOfSuperblock ? past : begin + kBlocksOfSuperblock};
}

// Those that are seen from `from` to `last`; none where first > last.
__device__ __forceinline__ SlotRange SlotsOf(const int64_t from, const int64_t last, const int64_t block) {
  const int64_t start = block * kPageTokens;
  return {from > start ? from - start : 0, last - start < kPageTokens - 1 ? last - start : kPageTokens - 1};
}

struct RowSum {
  float largest = -INFINITY;
  float total = 0.0F;
};

// `scores`: products of a lane's row with its slots (lane + 8 m). Makes weights
// of them, 0 where the row does not see, adds them to `sum`, and gives what its
// values so far are to be multiplied with.
__device__ __forceinline__ float Weigh(const AttentionLaunch& args, const DeviceKvSpan& span, const AttentionTile& tile,
                                       const OwnRow& row, const int64_t block, float (&scores)[kSlotsPerLane],
                                       RowSum& sum) {
  const int lane = Thread() % kRowLanes;
  const SlotRange slots = SlotsOf(row.from, row.position, block);
  const bool sees = row.lives && slots.first <= slots.last;
  const float* degrees = block < span.body_pages && span.log_degrees != nullptr
                             ? span.log_degrees + (block * args.shape.kv_heads + tile.kv_head) * kPageTokens
                             : nullptr;
  float largest = -INFINITY;
#pragma unroll
  for (int m = 0; m < kSlotsPerLane; ++m) {
    const int slot = lane + kRowLanes * m;
    scores[m] = scores[m] * args.shape.scale + (degrees != nullptr ? degrees[slot] : 0.0F);
    if (!sees || slot < slots.first || slot > slots.last) scores[m] = -INFINITY;
    largest = scores[m] > largest ? scores[m] : largest;
  }
  largest = GroupMax<kRowLanes>(largest);
  largest = sum.largest > largest ? sum.largest : largest;
  float total = 0.0F;
#pragma unroll
  for (int m = 0; m < kSlotsPerLane; ++m) {
    const int slot = lane + kRowLanes * m;
    scores[m] = sees && slot >= slots.first && slot <= slots.last ? Exp(scores[m] - largest) : 0.0F;
    total += scores[m];
  }
  total = GroupSum<kRowLanes>(total);
  if (!sees) return 1.0F;
  const float correction = Exp(sum.largest - largest);  // 0 at first.
  sum.largest = largest;
  sum.total = sum.total * correction + total;
  return correction;
}

// Factors of what a row has been summed to and of what is added to it, at two
// partials that meet.
struct MergeFactors {
  float keep = 1.0F;
  float take = 0.0F;
};
__device__ __forceinline__ MergeFactors MergeSums(RowSum& into, const RowSum& from) {
  if (from.largest == -INFINITY) return {};
  const float largest = into.largest > from.largest ? into.largest : from.largest;
  const MergeFactors factors{Exp(into.largest - largest), Exp(from.largest - largest)};
  into.largest = largest;
  into.total = into.total * factors.keep + from.total * factors.take;
  return factors;
}

// A partial in memory: values [16][dim], largest [16], total [16].
__device__ __forceinline__ void StoreSum(const RowSum& sum, const int64_t dim, const int tile_row, float* to) {
  to[kAttentionTileRows * dim + tile_row] = sum.largest;
  to[kAttentionTileRows * (dim + 1) + tile_row] = sum.total;
}
__device__ __forceinline__ RowSum LoadSum(const int64_t dim, const int tile_row, const float* from) {
  return {from[kAttentionTileRows * dim + tile_row], from[kAttentionTileRows * (dim + 1) + tile_row]};
}

// Adding zero first turns -0 into +0: whether a superblock before it added a
// zero cannot be seen.
__device__ __forceinline__ void StoreOutput(const AttentionLaunch& args, const OwnRow& row, const int64_t i,
                                            const float value, const float total) {
  float y = (value + 0.0F) / total;
  if (args.gate.data != nullptr) y *= Sigmoid(Row(args.gate, row.batch_row)[row.head * args.gate_head_stride + i]);
  StoreAs(args.out.data, row.batch_row * args.out.stride + row.head * args.shape.head_dim + i, args.out.dtype, y);
}

}  // namespace invar::kernels::cuda
