// Depthwise causal convolution over time, then SiLU, for some channels of one span.
//   out[t, c] = silu(sum_j weight[c, j] x[t - kernel + 1 + j, c])
// x [rows, channels] f32 strided; state [kernel - 1, channels]: the inputs before the span, oldest first, then replaced
// by the last inputs. Order: j ascending, one fma each, starting from zero.

static void Conv(const ConvChannels& p) {
  const int64_t kept = p.kernel - 1;
  for (int64_t c = 0; c < p.channels; c += 16) {
    const int64_t n = p.channels - c;
    v16 taps[kMaxConvKernel];
    v16 past[kMaxConvKernel];  // past[j] multiplies taps[j].
    for (int64_t j = 0; j < p.kernel; ++j) {
      float lanes[16] = {};
      for (int64_t i = 0; i < Least(16, n); ++i) lanes[i] = p.weight[(c + i) * p.kernel + j];
      taps[j] = Load(lanes);
    }
    for (int64_t j = 0; j < kept; ++j) past[j] = LoadUpTo(p.state + j * p.state_stride + c, n);
    for (int64_t t = 0; t < p.rows; ++t) {
      past[kept] = LoadUpTo(p.x + t * p.x_stride + c, n);
      v16 sum = Zero();
      for (int64_t j = 0; j < p.kernel; ++j) sum = Fma(taps[j], past[j], sum);
      StoreAs(p.out + t * p.out_stride + c, 0, false, Silu(sum), n);
      for (int64_t j = 0; j < kept; ++j) past[j] = past[j + 1];
    }
    for (int64_t j = 0; j < kept; ++j) StoreAs(p.state + j * p.state_stride + c, 0, false, past[j], n);
  }
}
