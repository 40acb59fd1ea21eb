// Gated delta rule, one token after another (prefill, decode, verify and resume all come here). With decay g, beta b:
//   u = k . S,  w = q . S  (state before the token);  d = b (v - g u);  o = g w + (q . k) d;  S = g S + k d
// qkv [T, 2 heads_k dim_k + heads_v dim_v] f32    b, a [T, heads_v] f32    out [T, heads_v dim_v] f32
// state [heads_v, dim_k, dim_v] f32, read and written in place; kept in registers from token to token
// A first kernel prepares every row: q, k normalised, q . k, beta and decay. The second walks the tokens of a span for
// 32 columns of one head's state; four neighbouring lanes share a column, lane l of them rows l, l + 4, ... of it.
// Order: a lane's rows ascending, one fma each, then the four lanes' tree (reduce.cuh); sums over dim_k of the first
// kernel as in rms_norm.cu. Cuts into spans do not enter: a state leaves the registers as it would be carried on.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/reduce.cuh"

namespace invar::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kShare = 4;                    // Lanes of a column.
constexpr int kColumns = kThreads / kShare;  // Of a block.
constexpr int kPreparers = kThreads / kWarpLanes;

// A warp a key head of a row; the first of a row's blocks does its gates too.
__global__ void PrepareTokens(const DeltaLaunch args) {
  const int64_t t = BlockX();
  const int64_t dim = args.dim_k;
  if (BlockY() == 0) {
    for (int64_t h = Thread(); h < args.heads_v; h += kThreads) {
      const float rate = Exp(args.a_log[h]);
      const float step = Softplus(Row(args.a, t)[h] + args.dt_bias[h]);
      args.scratch.beta[t * args.heads_v + h] = Sigmoid(Row(args.b, t)[h]);
      args.scratch.decay[t * args.heads_v + h] = Exp(-(rate * step));
    }
  }
  const int64_t h = BlockY() * kPreparers + Warp();
  if (h >= args.heads_k) return;
  const float* q = Row(args.qkv, t) + h * dim;
  const float* k = Row(args.qkv, t) + (args.heads_k + h) * dim;
  const int64_t at = t * args.heads_k + h;
  float q_sum = 0.0F;
  float k_sum = 0.0F;
  for (int64_t i = Lane(); i < dim; i += kWarpLanes) {
    q_sum = Fma(q[i], q[i], q_sum);
    k_sum = Fma(k[i], k[i], k_sum);
  }
  const float q_scale = InverseSquareRoot(WarpSum(q_sum) + 1e-6F);
  const float k_scale = InverseSquareRoot(WarpSum(k_sum) + 1e-6F);
  const float by_dim = InverseSquareRoot(static_cast<float>(dim));
  float product = 0.0F;
  for (int64_t i = Lane(); i < dim; i += kWarpLanes) {
    const float q_out = q[i] * q_scale * by_dim;
    const float k_out = k[i] * k_scale;
    args.scratch.q[at * dim + i] = q_out;
    args.scratch.k[at * dim + i] = k_out;
    product = Fma(q_out, k_out, product);
  }
  product = WarpSum(product);
  if (Lane() == 0) args.scratch.qk[at] = product;
}

// kRows of a column's state in a lane: dim_k <= kShare * kRows. Rows past dim_k are zero and stay so.
template <int kRows>
__global__ void __launch_bounds__(kThreads) ScanColumns(const DeltaLaunch args) {
  constexpr int kDim = kShare * kRows;
  SharedArrays shared(SharedMemory());
  float* vectors = shared.Take<float>(2 * 2 * kDim);  // Of two tokens in turn: k, then q.
  const DeviceStateSpan& span = args.spans[BlockX()];
  const int64_t h = BlockY();
  const int64_t key_head = h / (args.heads_v / args.heads_k);
  const int share = Thread() % kShare;
  const int64_t column = BlockZ() * kColumns + Thread() / kShare;
  const bool lives = column < args.dim_v;
  const int64_t head_state = h * args.dim_k * args.dim_v;
  float state[kRows];
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const int64_t i = share + kShare * j;
    state[j] = lives && i < args.dim_k ? span.recurrent[head_state + i * args.dim_v + column] : 0.0F;
  }
  const auto leave = [&](float* to) {
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const int64_t i = share + kShare * j;
      if (lives && i < args.dim_k) to[head_state + i * args.dim_v + column] = state[j];
    }
  };
  int32_t emit = span.emit_begin;
  for (int32_t r = 0; r < span.rows; ++r) {
    const int64_t t = span.row_begin + r;
    const int64_t at = (t * args.heads_k + key_head) * args.dim_k;
    float* k = vectors + r % 2 * 2 * kDim;
    float* q = k + kDim;
    for (int i = Thread(); i < kDim; i += kThreads) {
      k[i] = i < args.dim_k ? args.scratch.k[at + i] : 0.0F;
      q[i] = i < args.dim_k ? args.scratch.q[at + i] : 0.0F;
    }
    // One wait a token: the other token's vectors are written next, and all are done with those of the token before it.
    SyncBlock();
    float u = 0.0F;
    float w = 0.0F;
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      u = Fma(k[share + kShare * j], state[j], u);
      w = Fma(q[share + kShare * j], state[j], w);
    }
    u = GroupSum<kShare>(u);
    w = GroupSum<kShare>(w);
    const float decay = args.scratch.decay[t * args.heads_v + h];
    const float beta = args.scratch.beta[t * args.heads_v + h];
    const int64_t channel = int64_t{2} * args.heads_k * args.dim_k + h * args.dim_v + column;
    const float v = lives ? Row(args.qkv, t)[channel] : 0.0F;
    const float d = beta * (v - decay * u);
    if (lives && share == 0) {
      Row(args.out, t)[h * args.dim_v + column] = Fma(args.scratch.qk[t * args.heads_k + key_head], d, decay * w);
    }
#pragma unroll
    for (int j = 0; j < kRows; ++j) state[j] = Fma(k[share + kShare * j], d, decay * state[j]);
    if (emit < span.emit_end && args.emits[emit].rows == r + 1) leave(args.emits[emit++].recurrent);
  }
  leave(span.recurrent);
}

template <int kRows>
void LaunchScan(const DeltaLaunch& args, const Stream stream) {
  SharedArrays shared(nullptr);
  shared.Take<float>(2 * 2 * kShare * kRows);
  Launch("delta_scan", ScanColumns<kRows>,
         {{args.span_count, args.heads_v, CeilDiv(args.dim_v, kColumns)}, kThreads, shared.bytes()}, stream, args);
}

}  // namespace

void DeltaScan(const DeltaLaunch& args, const Stream stream) {
  Launch("delta_prepare", PrepareTokens, {{args.qkv.rows, CeilDiv(args.heads_k, kPreparers)}, kThreads, 0}, stream,
         args);
  if (args.dim_k <= 64) return LaunchScan<16>(args, stream);
  if (args.dim_k <= 128) return LaunchScan<32>(args, stream);
  static_assert(kMaxDeltaDimK == kShare * 64);
  LaunchScan<64>(args, stream);
}

}  // namespace invar::kernels::cuda
