// RopeAngles: cos and sin of position * inverse_frequency in double, times a factor, rounded once. A thread an angle.
// QkvPrepare: per head, norm where there is a weight, then rotation of pairs (i, i + half); queries go to `q_out`, keys
// and values into their page, [64 slots][dim] each, KV head after KV head. A warp a head of a row.
// Order of the norm's sum: as in rms_norm.cu, a lane of 32 each.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/numerics.h"
#include "kernels/shared/sin_cos.h"

namespace invar::kernels::cuda {
namespace {

constexpr int kAngleThreads = 128;
constexpr int kHeadsPerBlock = 4;

__global__ void Angles(const RopeAnglesArgs args) {
  const int64_t index = BlockX() * kAngleThreads + Thread();
  if (index >= args.cos.rows * args.cos.cols) return;
  const int64_t t = index / args.cos.cols;
  const int64_t i = index % args.cos.cols;
  const SinCos angle = SinCosOf(args.positions[t] * args.inverse_frequencies[i]);
  Row(args.cos, t)[i] = static_cast<float>(angle.cos * args.factor);
  Row(args.sin, t)[i] = static_cast<float>(angle.sin * args.factor);
}

// `y` [dim] in shared memory, of this warp alone.
__device__ void NormAndRotate(const QkvLaunch& args, const float* x, const float* weight, const int64_t t, float* y) {
  const int64_t dim = args.shape.head_dim;
  float scale = 1.0F;
  if (weight != nullptr) {
    float own = 0.0F;
    for (int64_t i = Lane(); i < dim; i += kWarpLanes) own = Fma(x[i], x[i], own);
    scale = InverseSquareRoot(WarpSum(own) / static_cast<float>(dim) + args.norm_eps);
  }
  for (int64_t i = Lane(); i < dim; i += kWarpLanes) y[i] = weight != nullptr ? x[i] * scale * weight[i] : x[i];
  SyncWarp();
  const int64_t half = args.cos.cols;
  for (int64_t i = Lane(); i < half; i += kWarpLanes) {
    const float cos = Row(args.cos, t)[i];
    const float sin = Row(args.sin, t)[i];
    const float first = y[i];
    const float second = y[i + half];
    y[i] = first * cos - second * sin;
    y[i + half] = second * cos + first * sin;
  }
  SyncWarp();
}

__global__ void PrepareHeads(const QkvLaunch args) {
  const AttentionShapeArgs& shape = args.shape;
  SharedArrays shared(SharedMemory());
  float* y = shared.Take<float>(kHeadsPerBlock * shape.head_dim) + Warp() * shape.head_dim;
  const int64_t t = BlockX();
  const int64_t h = BlockY() * kHeadsPerBlock + Warp();
  const int32_t at = args.row_spans[t];
  if (at < 0 || h >= shape.heads + shape.kv_heads) return;
  const int64_t dim = shape.head_dim;
  if (h < shape.heads) {
    NormAndRotate(args, Row(args.q, t) + h * args.q_head_stride, args.q_norm, t, y);
    const int64_t to = t * args.q_out.stride + h * dim;
    for (int64_t i = Lane(); i < dim; i += kWarpLanes) StoreAs(args.q_out.data, to + i, args.kv, y[i]);
    return;
  }
  const DeviceKvSpan& span = args.spans[at];
  const int64_t position = span.first_position + t - span.row_begin;
  if (position < span.write_from) return;
  const int64_t kv_head = h - shape.heads;
  NormAndRotate(args, Row(args.k, t) + kv_head * dim, args.k_norm, t, y);
  std::byte* page = span.arena + span.pages[position / kPageTokens - span.body_pages] * span.page_stride_bytes +
                    span.layer_offset_bytes;
  const int64_t key = (2 * kv_head * kPageTokens + position % kPageTokens) * dim;
  const int64_t value = key + kPageTokens * dim;
  const float* v = Row(args.v, t) + kv_head * dim;
  for (int64_t i = Lane(); i < dim; i += kWarpLanes) {
    StoreAs(page, key + i, args.kv, y[i]);
    StoreAs(page, value + i, args.kv, v[i]);
  }
}

}  // namespace

void RopeAngles(const RopeAnglesArgs& args, const Stream stream) {
  Launch("rope_angles", Angles, {{CeilDiv(args.cos.rows * args.cos.cols, kAngleThreads)}, kAngleThreads, 0}, stream,
         args);
}

void QkvPrepare(const QkvLaunch& args, const Stream stream) {
  SharedArrays shared(nullptr);
  shared.Take<float>(kHeadsPerBlock * args.shape.head_dim);
  const int64_t heads = args.shape.heads + args.shape.kv_heads;
  Launch("qkv_prepare", PrepareHeads,
         {{args.q.rows, CeilDiv(heads, kHeadsPerBlock)}, kHeadsPerBlock * kWarpLanes, shared.bytes()}, stream, args);
}

}  // namespace invar::kernels::cuda
