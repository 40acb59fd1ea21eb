// out[r] = softmax(scale q[r] . k[j]) v[j] over visible j, times sigmoid(gate) where there is a gate; in a body, ln of
// a slot's degree is added to its scaled score. Query row r of a span and KV head is token r / group, head r % group of
// the KV head's group; a block of threads works on a tile of 16 rows, eight neighbouring lanes a row. Pages:
// kv_page.cuh. Positions are absolute; pages are the blocks of 64 of the sum. Order, of one row: blocks of 64 ascending
// with a running maximum, restarted every 1024, partials merged ascending.
//   score   dims ascending, one fma each
//   total   a lane's eight slots (lane, lane + 8, ...) ascending, then the tree of reduce.cuh over eight lanes
//   values  positions ascending, one fma each; weights are rounded to the pages' type first
// A row's sums stop at its own position and begin at its window: what else a page holds never enters, and what other
// rows of a tile see does not either. Whether one block walks all superblocks of a tile or each has a block of its own,
// the same partials are merged in the same order.
#include "kernels/cuda/kv_page.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/reduce.cuh"

namespace invar::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRowLanes = kThreads / kAttentionTileRows;  // Lanes that share a row: 8.
constexpr int kSlotsPerLane = kPageTokens / kRowLanes;
constexpr int kBlocksOfSuperblock = kSuperblockTokens / kPageTokens;

// What has been summed of one row: the maximum and the total in each of its lanes, of the values dims lane, lane + 8,
// ...
template <int kDims>
struct Partial {
  float largest = -INFINITY;
  float total = 0.0F;
  float values[kDims] = {};
};

template <typename T>
struct BlockMemory {
  float* q;        // [16][dim + 1]
  float* weights;  // [16][64]
  T* keys;         // [64][BlockPitch]
  T* values;
};
template <typename T>
__host__ __device__ BlockMemory<T> TakeMemory(SharedArrays& shared, const int64_t dim) {
  return {shared.Take<float>(kAttentionTileRows * (dim + 1)), shared.Take<float>(kAttentionTileRows * kPageTokens),
          shared.Take<T>(kPageTokens * BlockPitch<T>(dim)), shared.Take<T>(kPageTokens * BlockPitch<T>(dim))};
}

// One lane's row.
struct OwnRow {
  int64_t index = 0;  // In the span.
  int64_t batch_row = 0;
  int64_t head = 0;
  int64_t position = 0;
  int64_t from = 0;    // First visible position.
  bool lives = false;  // The last tile of a span may have rows too many.
};

__device__ OwnRow RowOf(const AttentionLaunch& args, const DeviceKvSpan& span, const AttentionTile& tile) {
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  OwnRow row;
  row.index = tile.first_row + Thread() / kRowLanes;
  row.lives = row.index < span.rows * group;
  const int64_t token = row.lives ? row.index / group : 0;
  row.batch_row = span.row_begin + token;
  row.head = tile.kv_head * group + row.index % group;
  row.position = span.first_position + token;
  row.from = args.shape.window > 0 && row.position >= args.shape.window ? row.position - args.shape.window + 1 : 0;
  return row;
}

// One block's scores, weights and values added to `part`.
template <typename T, int kDims>
__device__ void AttendBlock(const AttentionLaunch& args, const DeviceKvSpan& span, const AttentionTile& tile,
                            const OwnRow& row, const BlockMemory<T>& memory, const int64_t block,
                            Partial<kDims>& part) {
  const int64_t dim = args.shape.head_dim;
  const int64_t pitch = BlockPitch<T>(dim);
  const int lane = Thread() % kRowLanes;
  const int tile_row = Thread() / kRowLanes;
  const int64_t start = block * kPageTokens;
  const int64_t first = row.from > start ? row.from - start : 0;
  const int64_t last = row.position - start < kPageTokens - 1 ? row.position - start : kPageTokens - 1;
  const bool sees = row.lives && first <= last;
  float s[kSlotsPerLane] = {};
  const float* q = memory.q + tile_row * (dim + 1);
  for (int64_t i = 0; i < dim; ++i) {
#pragma unroll
    for (int m = 0; m < kSlotsPerLane; ++m) {
      s[m] = Fma(q[i], LoadElement(memory.keys[(lane + kRowLanes * m) * pitch + i]), s[m]);
    }
  }
  const float* degrees = block < span.body_pages && span.log_degrees != nullptr
                             ? span.log_degrees + (block * args.shape.kv_heads + tile.kv_head) * kPageTokens
                             : nullptr;
  float largest = -INFINITY;
#pragma unroll
  for (int m = 0; m < kSlotsPerLane; ++m) {
    const int slot = lane + kRowLanes * m;
    s[m] = s[m] * args.shape.scale + (degrees != nullptr ? degrees[slot] : 0.0F);
    if (!sees || slot < first || slot > last) s[m] = -INFINITY;
    largest = s[m] > largest ? s[m] : largest;
  }
  largest = GroupMax<kRowLanes>(largest);
  largest = part.largest > largest ? part.largest : largest;
  float total = 0.0F;
#pragma unroll
  for (int m = 0; m < kSlotsPerLane; ++m) {
    const int slot = lane + kRowLanes * m;
    s[m] = sees && slot >= first && slot <= last ? Exp(s[m] - largest) : 0.0F;
    total += s[m];
  }
  total = GroupSum<kRowLanes>(total);
#pragma unroll
  for (int m = 0; m < kSlotsPerLane; ++m) {
    T stored;
    StoreElement(&stored, s[m]);
    memory.weights[tile_row * kPageTokens + lane + kRowLanes * m] = LoadElement(stored);
  }
  SyncWarp();
  if (sees) {
    const float correction = Exp(part.largest - largest);  // 0 at first.
    part.largest = largest;
    part.total = part.total * correction + total;
#pragma unroll
    for (int n = 0; n < kDims; ++n) part.values[n] *= correction;
    for (int64_t j = first; j <= last; ++j) {
      const float weight = memory.weights[tile_row * kPageTokens + j];
      const T* v = memory.values + j * pitch;
#pragma unroll
      for (int n = 0; n < kDims; ++n) {
        const int64_t i = lane + kRowLanes * n;
        if (i < dim) part.values[n] = Fma(weight, LoadElement(v[i]), part.values[n]);
      }
    }
  }
}

template <typename T, int kDims>
__device__ Partial<kDims> AttendSuperblock(const AttentionLaunch& args, const DeviceKvSpan& span,
                                           const AttentionTile& tile, const OwnRow& row, const BlockMemory<T>& memory,
                                           const int64_t superblock) {
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  const int64_t rows = span.rows * group;
  const int64_t end_row = tile.first_row + kAttentionTileRows < rows ? tile.first_row + kAttentionTileRows : rows;
  const int64_t first_position = span.first_position + tile.first_row / group;
  const int64_t last_position = span.first_position + (end_row - 1) / group;
  const int64_t from =
      args.shape.window > 0 && first_position >= args.shape.window ? first_position - args.shape.window + 1 : 0;
  const int64_t begin = superblock * kBlocksOfSuperblock;
  const int64_t first = from / kPageTokens > begin ? from / kPageTokens : begin;
  const int64_t past = last_position / kPageTokens + 1;
  const int64_t end = past < begin + kBlocksOfSuperblock ? past : begin + kBlocksOfSuperblock;
  Partial<kDims> part;
  for (int64_t block = first; block < end; ++block) {
    BringBlock<T>(span, tile.kv_head, block, args.shape.head_dim, memory.keys, memory.values);
    SyncBlock();
    AttendBlock<T, kDims>(args, span, tile, row, memory, block, part);
    SyncBlock();
  }
  return part;
}

template <int kDims>
__device__ void Merge(Partial<kDims>& into, const Partial<kDims>& from) {
  if (from.largest == -INFINITY) return;
  const float largest = into.largest > from.largest ? into.largest : from.largest;
  const float keep = Exp(into.largest - largest);
  const float take = Exp(from.largest - largest);
  into.largest = largest;
  into.total = into.total * keep + from.total * take;
#pragma unroll
  for (int n = 0; n < kDims; ++n) into.values[n] = Fma(from.values[n], take, into.values[n] * keep);
}

// Adding zero first turns -0 into +0: whether a superblock before it added a zero cannot be seen.
template <int kDims>
__device__ void Finish(const AttentionLaunch& args, const OwnRow& row, const Partial<kDims>& whole) {
  if (!row.lives) return;
  const int64_t dim = args.shape.head_dim;
  const float* gate =
      args.gate.data != nullptr ? Row(args.gate, row.batch_row) + row.head * args.gate_head_stride : nullptr;
#pragma unroll
  for (int n = 0; n < kDims; ++n) {
    const int64_t i = Thread() % kRowLanes + kRowLanes * n;
    if (i >= dim) break;
    float y = (whole.values[n] + 0.0F) / whole.total;
    if (gate != nullptr) y *= Sigmoid(gate[i]);
    StoreAs(args.out.data, row.batch_row * args.out.stride + row.head * dim + i, args.out.dtype, y);
  }
}

// A partial in memory: values [16][dim], largest [16], total [16].
template <int kDims>
__device__ void StorePartial(const Partial<kDims>& part, const int64_t dim, float* to) {
  const int tile_row = Thread() / kRowLanes;
#pragma unroll
  for (int n = 0; n < kDims; ++n) {
    const int64_t i = Thread() % kRowLanes + kRowLanes * n;
    if (i < dim) to[tile_row * dim + i] = part.values[n];
  }
  if (Thread() % kRowLanes != 0) return;
  to[kAttentionTileRows * dim + tile_row] = part.largest;
  to[kAttentionTileRows * (dim + 1) + tile_row] = part.total;
}
template <int kDims>
__device__ Partial<kDims> LoadPartial(const int64_t dim, const float* from) {
  const int tile_row = Thread() / kRowLanes;
  Partial<kDims> part;
#pragma unroll
  for (int n = 0; n < kDims; ++n) {
    const int64_t i = Thread() % kRowLanes + kRowLanes * n;
    if (i < dim) part.values[n] = from[tile_row * dim + i];
  }
  part.largest = from[kAttentionTileRows * dim + tile_row];
  part.total = from[kAttentionTileRows * (dim + 1) + tile_row];
  return part;
}

template <typename T, int kDims>
__global__ void __launch_bounds__(kThreads) AttendTiles(const AttentionLaunch args) {
  const AttentionTask task = args.tasks[BlockX()];
  const AttentionTile tile = args.tiles[task.tile];
  const DeviceKvSpan& span = args.spans[tile.span];
  const int64_t dim = args.shape.head_dim;
  SharedArrays shared(SharedMemory());
  const BlockMemory<T> memory = TakeMemory<T>(shared, dim);
  const OwnRow row = RowOf(args, span, tile);
  for (int64_t i = Thread() % kRowLanes; i < dim; i += kRowLanes) {
    const int64_t at = row.batch_row * args.q.stride + row.head * dim + i;
    memory.q[Thread() / kRowLanes * (dim + 1) + i] = row.lives ? LoadAs(args.q.data, at, args.q.dtype) : 0.0F;
  }
  if (tile.partial >= 0) {
    const Partial<kDims> part =
        AttendSuperblock<T, kDims>(args, span, tile, row, memory, tile.first_superblock + task.superblock);
    StorePartial(part, dim, args.partials + (tile.partial + task.superblock) * PartialFloats(dim));
    return;
  }
  Partial<kDims> whole = AttendSuperblock<T, kDims>(args, span, tile, row, memory, tile.first_superblock);
  for (int32_t s = 1; s < tile.superblocks; ++s) {
    Merge(whole, AttendSuperblock<T, kDims>(args, span, tile, row, memory, tile.first_superblock + s));
  }
  Finish(args, row, whole);
}

template <int kDims>
__global__ void __launch_bounds__(kThreads) MergeTiles(const AttentionLaunch args) {
  const AttentionTile tile = args.tiles[args.split_tiles[BlockX()]];
  const OwnRow row = RowOf(args, args.spans[tile.span], tile);
  const int64_t dim = args.shape.head_dim;
  const float* partials = args.partials + tile.partial * PartialFloats(dim);
  Partial<kDims> whole = LoadPartial<kDims>(dim, partials);
  for (int32_t s = 1; s < tile.superblocks; ++s) {
    Merge(whole, LoadPartial<kDims>(dim, partials + s * PartialFloats(dim)));
  }
  Finish(args, row, whole);
}

template <typename T, int kDims>
void LaunchAttention(const AttentionLaunch& args, const Stream stream) {
  SharedArrays shared(nullptr);
  TakeMemory<T>(shared, args.shape.head_dim);
  Launch("attention", AttendTiles<T, kDims>, {{args.task_count}, kThreads, shared.bytes()}, stream, args);
  Launch("attention_merge", MergeTiles<kDims>, {{args.split_count}, kThreads, 0}, stream, args);
}

template <typename T>
void LaunchAttention(const AttentionLaunch& args, const Stream stream) {
  if (args.shape.head_dim <= 64) return LaunchAttention<T, 8>(args, stream);
  if (args.shape.head_dim <= 128) return LaunchAttention<T, 16>(args, stream);
  static_assert(kMaxHeadDim == kRowLanes * 32);
  LaunchAttention<T, 32>(args, stream);
}

}  // namespace

void Attention(const AttentionLaunch& args, const Stream stream) {
  if (args.kv == DType::kBf16) return LaunchAttention<uint16_t>(args, stream);
  LaunchAttention<float>(args, stream);
}

}  // namespace invar::kernels::cuda
