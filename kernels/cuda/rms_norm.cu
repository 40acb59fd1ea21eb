// RmsNorm: out = x / sqrt(mean(x^2) + eps) * weight, a block a row. GatedRmsNorm: the same per head of `dim` columns,
// * silu(z), a warp a head.
// Order of the sum: thread i of 256 (lane i of 32) takes elements i, i + 256 (i + 32), ... ascending, one fma each;
// then the tree of reduce.cuh.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/reduce.cuh"

namespace invar::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void NormRows(const NormArgs args) {
  SharedArrays shared(SharedMemory());
  float* sums = shared.Take<float>(kThreads / kWarpLanes);
  const float* x = Row(args.x, BlockX());
  float own = 0.0F;
  for (int64_t i = Thread(); i < args.x.cols; i += kThreads) own = Fma(x[i], x[i], own);
  const float mean = BlockSum(own, sums) / static_cast<float>(args.x.cols);
  const float scale = InverseSquareRoot(mean + args.eps);
  for (int64_t i = Thread(); i < args.x.cols; i += kThreads) {
    StoreAs(args.out.data, BlockX() * args.out.stride + i, args.out.dtype, x[i] * scale * args.weight[i]);
  }
}

__global__ void NormHeads(const NormArgs args) {
  const int64_t heads = args.x.cols / args.dim;
  const int64_t index = BlockX() * Warps() + Warp();
  if (index >= args.x.rows * heads) return;  // Whole warps leave, and nobody waits for the block.
  const int64_t t = index / heads;
  const int64_t head = index % heads * args.dim;
  const float* x = Row(args.x, t) + head;
  const float* z = Row(args.z, t) + head;
  float own = 0.0F;
  for (int64_t i = Lane(); i < args.dim; i += kWarpLanes) own = Fma(x[i], x[i], own);
  const float scale = InverseSquareRoot(WarpSum(own) / static_cast<float>(args.dim) + args.eps);
  for (int64_t i = Lane(); i < args.dim; i += kWarpLanes) {
    StoreAs(args.out.data, t * args.out.stride + head + i, args.out.dtype, x[i] * scale * args.weight[i] * Silu(z[i]));
  }
}

}  // namespace

void RmsNorm(const NormArgs& args, const Stream stream) {
  SharedArrays shared(nullptr);
  shared.Take<float>(kThreads / kWarpLanes);
  Launch("rms_norm", NormRows, {{args.x.rows}, kThreads, shared.bytes()}, stream, args);
}

void GatedRmsNorm(const NormArgs& args, const Stream stream) {
  const int64_t heads = args.x.rows * (args.x.cols / args.dim);
  Launch("gated_rms_norm", NormHeads, {{CeilDiv(heads, 4)}, 4 * kWarpLanes, 0}, stream, args);
}

}  // namespace invar::kernels::cuda
