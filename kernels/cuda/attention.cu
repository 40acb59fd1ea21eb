// out[r] = softmax(scale q[r] . k[j]) v[j] over visible j, times sigmoid(gate)
// where there is a gate; in a body, ln of a slot's degree is added to its
// scaled score. Query row r of a span and KV head is token r / group, head r %
// group of the KV head's group; a block of threads works on a tile of 16 rows.
// Pages: kv_page.cuh. Positions are absolute; pages are the blocks of 64 of the
// sum. Order, of one row: blocks of 64 ascending with a running maximum,
// restarted every 1024, partials merged ascending.
//   score   dims ascending, in steps of 16 on tensor cores where pages are bf16,
//           else one fma each
//   total   a lane's eight slots (lane, lane + 8, ...) ascending, then the tree
//           of reduce.cuh over eight lanes
//   values  positions ascending, as scores; weights are rounded to the pages'
//           type first
// A row's sums stop at its own position and begin at its window: what else a
// page holds never enters, and what other rows of a tile see does not either.
// Whether one block walks all superblocks of a tile or each has a block of its
// own, the same partials are merged in the same order; prefill, verify and
// decode are tiles of the same kernel.
#include "kernels/cuda/attention_fma.cuh"
#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/launch.cuh"

namespace invar::kernels::cuda {
namespace {

template <typename Kind>
__global__ void __launch_bounds__(kAttentionThreads) AttendTiles(const AttentionLaunch args) {
  const AttentionTask task = args.tasks[BlockX()];
  const AttentionTile tile = args.tiles[task.tile];
  SharedArrays shared(SharedMemory());
  const Kind kind(args, args.spans[tile.span], tile, shared);
  const bool splits = tile.partial >= 0;
  const int32_t count = splits ? 1 : tile.superblocks;
  typename Kind::Partial whole;
  for (int32_t s = 0; s < count; ++s) {
    const typename Kind::Partial part = kind.Superblock(tile.first_superblock + (splits ? task.superblock : s));
    if (s == 0) {
      whole = part;
    } else {
      kind.Merge(whole, part);
    }
  }
  if (splits) {
    kind.Store(whole, args.partials + (tile.partial + task.superblock) * PartialFloats(args.shape.head_dim));
  } else {
    kind.Finish(whole);
  }
}

// Eight lanes a row, each with dims lane, lane + 8, ...
__global__ void __launch_bounds__(kAttentionThreads) MergeTiles(const AttentionLaunch args) {
  const AttentionTile tile = args.tiles[args.split_tiles[BlockX()]];
  const int tile_row = Thread() / kRowLanes;
  const OwnRow row = RowOf(args, args.spans[tile.span], tile, tile_row);
  if (!row.lives) return;
  const int64_t dim = args.shape.head_dim;
  const float* partials = args.partials + tile.partial * PartialFloats(dim);
  for (int64_t i = Thread() % kRowLanes; i < dim; i += kRowLanes) {
    RowSum sum = LoadSum(dim, tile_row, partials);
    float value = partials[tile_row * dim + i];
    for (int32_t s = 1; s < tile.superblocks; ++s) {
      const float* from = partials + s * PartialFloats(dim);
      const MergeFactors factors = MergeSums(sum, LoadSum(dim, tile_row, from));
      value = Fma(from[tile_row * dim + i], factors.take, value * factors.keep);
    }
    StoreOutput(args, row, i, value, sum.total);
  }
}

template <typename Kind>
void LaunchKind(const AttentionLaunch& args, const Stream stream) {
  SharedArrays shared(nullptr);
  Kind::Take(shared, args.shape.head_dim);
  Launch("attention", AttendTiles<Kind>, {{args.task_count}, kAttentionThreads, shared.bytes()}, stream, args);
}

}  // namespace

void Attention(const AttentionLaunch& args, const Stream stream) {
  static_assert(kMaxHeadDim == 256);
  const int32_t dim = args.shape.head_dim;
  if (args.kv == DType::kF32) {
    const auto launch = dim <= 64    ? LaunchKind<FmaAttention<8>>
                        : dim <= 128 ? LaunchKind<FmaAttention<16>>
                                     : LaunchKind<FmaAttention<32>>;
    launch(args, stream);
  } else {
    const auto launch = dim <= 64    ? LaunchKind<TensorAttention<2>>
                        : dim <= 128 ? LaunchKind<TensorAttention<4>>
                                     : LaunchKind<TensorAttention<8>>;
    launch(args, stream);
  }
  Launch("attention_merge", MergeTiles, {{args.split_count}, kAttentionThreads, 0}, stream, args);
}

}  // namespace invar::kernels::cuda
