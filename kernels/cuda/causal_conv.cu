// out[t, c] = silu(sum_j weight[c, j] x[t - kernel + 1 + j, c]), j ascending, one fma each; inputs before the span come
// from its state. Then, in a second kernel, states take the last kernel - 1 inputs: emitted ones, and the span's own.
// x, out [T, channels] f32    weight [channels, kernel] f32    state [kernel - 1, channels] f32, oldest first
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/math.cuh"

namespace invar::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// Input of channel c, `row` counted from the span's first; rows before it lie in the state.
__device__ float InputAt(const ConvLaunch& args, const DeviceStateSpan& span, const int64_t row, const int64_t c) {
  if (row >= 0) return Row(args.x, span.row_begin + row)[c];
  return span.conv[(args.kernel - 1 + row) * args.x.cols + c];
}

// A thread an element of the output.
__global__ void ConvRows(const ConvLaunch args) {
  const int64_t c = BlockY() * kThreads + Thread();
  const int64_t t = BlockX();
  const int32_t at = args.row_spans[t];
  if (at < 0 || c >= args.x.cols) return;
  const DeviceStateSpan& span = args.spans[at];
  float sum = 0.0F;
  for (int64_t j = 0; j < args.kernel; ++j) {
    sum = Fma(args.weight[c * args.kernel + j], InputAt(args, span, t - span.row_begin - args.kernel + 1 + j, c), sum);
  }
  Row(args.out, t)[c] = Silu(sum);
}

// A thread a channel of a span: it alone touches the channel's states.
__global__ void ConvStates(const ConvLaunch args) {
  const int64_t c = BlockY() * kThreads + Thread();
  if (c >= args.x.cols) return;
  const DeviceStateSpan& span = args.spans[BlockX()];
  const int64_t kept = args.kernel - 1;
  for (int32_t e = span.emit_begin; e < span.emit_end; ++e) {
    const DeviceEmit& emit = args.emits[e];
    for (int64_t i = 0; i < kept; ++i) emit.conv[i * args.x.cols + c] = InputAt(args, span, emit.rows - kept + i, c);
  }
  // A row of the state is read before it is written: rows only move towards the front.
  for (int64_t i = 0; i < kept; ++i) span.conv[i * args.x.cols + c] = InputAt(args, span, span.rows - kept + i, c);
}

}  // namespace

void CausalConv(const ConvLaunch& args, const Stream stream) {
  const int64_t blocks = CeilDiv(args.x.cols, kThreads);
  Launch("causal_conv_rows", ConvRows, {{args.x.rows, blocks}, kThreads, 0}, stream, args);
  Launch("causal_conv_states", ConvStates, {{args.span_count, blocks}, kThreads, 0}, stream, args);
}

}  // namespace invar::kernels::cuda
