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

// As many independent accumulators as the product kernel keeps, each taking one pair a step. Inputs come from `sink`,
// so that nothing can be computed beforehand, and every accumulator goes into it.
static double Peak(const int64_t steps, float* sink) {
  constexpr int R = Bf16Product::kMostRows;
  constexpr int G = kTileGroups[R];
  alignas(64) Bf16Product::W w[G * 32];
  alignas(64) Bf16Product::A a[R] = {};
  for (Bf16Product::W& value : w) value = static_cast<Bf16Product::W>(*sink);
  v16 c[R][G];
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) c[r][g] = Set1(*sink);
  }
  for (int64_t s = 0; s < steps; ++s) {
    for (int g = 0; g < G; ++g) {
      const auto weights = Bf16Product::LoadW(w + g * 32);
      for (int r = 0; r < R; ++r) c[r][g] = Bf16Product::First(c[r][g], weights, a[r]);
      for (int r = 0; r < R; ++r) c[r][g] = Bf16Product::Second(c[r][g], weights, a[r]);
    }
  }
  v16 sum = Zero();
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) sum = Add(sum, c[r][g]);
  }
  *sink = SumLanes(sum);
  return static_cast<double>(steps) * R * G * 16 * 4;
}

static float Read(const float* x, const int64_t n) {
  v16 sums[4] = {Zero(), Zero(), Zero(), Zero()};
  for (int64_t i = 0; i < n; i += 64) {
    PrefetchNear(x + i + 1024);
    PrefetchNear(x + i + 1040);
    PrefetchNear(x + i + 1056);
    PrefetchNear(x + i + 1072);
    for (int j = 0; j < 4; ++j) sums[j] = Add(sums[j], Load(x + i + j * 16));
  }
  return SumLanes(Add(Add(sums[0], sums[1]), Add(sums[2], sums[3])));
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
          .exp_sum = ExpSum,
          .qkv_row = QkvOneRow,
          .attention_superblock = AttentionSuperblock,
          .attention_merge = AttentionMerge,
          .attention_finish = AttentionFinish,
          .conv = Conv,
          .delta_prepare = DeltaPrepareHead,
          .delta_gates = DeltaGates,
          .delta_columns = Delta,
          .peak = Peak,
          .read = Read};
}
