// Depthwise causal convolution over time, then SiLU, for some channels of one span.
//   out[t, c] = silu(sum_j weight[c, j] x[t - kernel + 1 + j, c])
// x [rows, channels] f32 strided; state [kernel - 1, channels]: the inputs before the span, oldest first, then replaced
// by the last inputs. Order: j ascending, one fma each, starting from zero.
// Row after row, so that memory is read in runs as long as the channels: column after column, every load would be
// another page.

template <int kKernel>
static inline void ConvRows(const ConvChannels& p) {
  alignas(64) float taps[kKernel][kMaxConvChannels];
  for (int64_t c = 0; c < p.channels; ++c) {
    for (int j = 0; j < kKernel; ++j) taps[j][c] = p.weight[c * kKernel + j];
  }
  constexpr int64_t kAhead = 4;  // Rows to prefetch: some 500 ns.
  for (int64_t t = 0; t < p.rows; ++t) {
    const float* inputs[kKernel];
    for (int j = 0; j < kKernel; ++j) {
      const int64_t row = t - kKernel + 1 + j;
      inputs[j] = row >= 0 ? p.x + row * p.x_stride : p.state + (row + kKernel - 1) * p.state_stride;
    }
    const int64_t ahead = Least(t + kAhead, p.rows - 1);
    for (int64_t c = 0; c < p.channels; c += 16) {
      const int64_t n = p.channels - c;
      PrefetchNear(p.x + ahead * p.x_stride + c);
      v16 sum = Zero();
      for (int j = 0; j < kKernel; ++j) sum = Fma(LoadUpTo(taps[j] + c, n), LoadUpTo(inputs[j] + c, n), sum);
      StoreAs(p.out + t * p.out_stride + c, 0, false, Silu(sum), n);
    }
  }
  for (int64_t j = 0; j < kKernel - 1; ++j) {  // Ascending: an old input moves down, over one that is not needed.
    const int64_t row = p.rows - kKernel + 1 + j;
    const float* from = row >= 0 ? p.x + row * p.x_stride : p.state + (row + kKernel - 1) * p.state_stride;
    for (int64_t c = 0; c < p.channels; c += 16) {
      const int64_t n = p.channels - c;
      StoreAs(p.state + j * p.state_stride + c, 0, false, LoadUpTo(from + c, n), n);
    }
  }
}

static void Conv(const ConvChannels& p) {
  WithConstant<kMaxConvKernel>(p.kernel, [&](auto kernel) { ConvRows<decltype(kernel)::value>(p); });
}
