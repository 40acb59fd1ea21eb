// The table of one instruction set, from the operations included before.

static void CopyRow(const void* from, const int64_t n, const bool bf16, void* to) {
  if (!bf16) {
    for (int64_t i = 0; i < n; i += 16) {
      StoreAs(to, i, false, LoadUpTo(static_cast<const float*>(from) + i, n - i), n - i);
    }
    if (n % 2 != 0) static_cast<float*>(to)[n] = 0.0F;
    return;
  }
  const auto* source = static_cast<const uint16_t*>(from);
  if constexpr (kExpands) {
    auto* wide = static_cast<float*>(to);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) Store(wide + i, LoadBf16(source + i));
    for (; i < n; ++i) wide[i] = __builtin_bit_cast(float, static_cast<uint32_t>(source[i]) << 16);
    if (n % 2 != 0) wide[n] = 0.0F;
  } else {
    auto* copy = static_cast<uint16_t*>(to);
    for (int64_t i = 0; i < n; ++i) copy[i] = source[i];
    if (n % 2 != 0) copy[n] = 0;
  }
}

// Peaks: as many independent accumulators as the product kernel keeps, so that neither latency nor memory counts.
// Inputs come from `sink`, so that nothing can be computed beforehand, and every accumulator goes into it.
static constexpr int kPeakChains = kMaxTileRows * kTileGroups[kMaxTileRows];

template <typename Step>
static inline void PeakOf(const int64_t steps, float* sink, const Step& step) {
  v16 c[kPeakChains];
  for (v16& chain : c) chain = Set1(*sink);
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 32  // So that they stay in registers.
    for (int i = 0; i < kPeakChains; ++i) c[i] = step(c[i]);
  }
  v16 sum = Zero();
  for (const v16& chain : c) sum = Add(sum, chain);
  *sink = SumLanes(sum);
}

static double FmaPeak(const int64_t steps, float* sink) {
  const v16 x = Set1(*sink);
  PeakOf(steps, sink, [x](const v16 c) { return Fma(x, x, c); });
  return static_cast<double>(steps) * kPeakChains * 16 * 2;
}

// P: Bf16Product, as a parameter so that the branch not taken need not compile.
template <typename P>
static double ProductPeak(const int64_t steps, float* sink) {
  if constexpr (kExpands) {
    return FmaPeak(steps, sink);  // A pair is two of them.
  } else {
    alignas(64) typename P::W w[32];
    for (typename P::W& value : w) value = static_cast<typename P::W>(*sink);
    const auto weights = P::template LoadW<0>(w);
    const auto a = static_cast<typename P::A>(w[0]);
    PeakOf(steps, sink, [weights, a](const v16 c) { return P::template AddTerm<0>(c, weights, a); });
    return static_cast<double>(steps) * kPeakChains * 16 * 4;
  }
}

static float Read(const float* x, const int64_t n, const int64_t streams, const int64_t ahead) {
  v16 sums[4] = {Zero(), Zero(), Zero(), Zero()};
  const int64_t part = n / streams;
  for (int64_t i = 0; i < part; i += 64) {
    for (int64_t stream = 0; stream < streams; ++stream) {
      const float* at = x + stream * part + i;
      for (int j = 0; j < 4; ++j) {
        PrefetchNear(at + ahead + j * 16);
        sums[j] = Add(sums[j], Load(at + j * 16));
      }
    }
  }
  return SumLanes(Add(Add(sums[0], sums[1]), Add(sums[2], sums[3])));
}

static void Update(float* x, const int64_t n) {
  const v16 one = Set1(1.0F);
  for (int64_t i = 0; i < n; i += 16) Store(x + i, Add(Load(x + i), one));
}

static constexpr KernelTable MakeTable(const char* name) {
  return {.name = name,
          .expands = kExpands,
          .copy_row = CopyRow,
          .panel_product = PanelProductAny,
          .rms_norm = RmsNorm,
          .gated_rms_norm = GatedRmsNorm,
          .swiglu = SwiGlu,
          .add_sigmoid_scaled = AddSigmoidScaled,
          .add_scaled = AddScaled,
          .softmax = Softmax,
          .block_maxima = BlockMaxima,
          .exp_sum = ExpSum,
          .sift_noise = SiftNoise,
          .qkv_row = QkvOneRow,
          .attention_superblock = AttentionSuperblock,
          .attention_merge = AttentionMerge,
          .attention_finish = AttentionFinish,
          .conv = Conv,
          .delta_prepare = DeltaPrepareHead,
          .delta_gates = DeltaGates,
          .delta_columns = Delta,
          .delta_columns_max = kDeltaGroups * 16,
          .delta_tokens = DeltaTokens,
          .product_peak = ProductPeak<Bf16Product>,
          .fma_peak = FmaPeak,
          .read = Read,
          .update = Update};
}
