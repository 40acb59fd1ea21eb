// Matrix product of a few rows with one packed panel of 64 outputs.
//   out[r, c] = sum_k a[r, k] w[c, k]
// a  [rows, k] f32 or bf16, `a_stride` elements apart    w  bf16 [k / 2][64][2], or f32 [k][64]; odd k padded with
// zeros Order: one accumulator an output, k ascending; a bf16 pair (2i, 2i+1) enters as fma(even, even', fma(odd, odd',
// acc)), which is what vdpbf16ps computes. Blocks of k store and reload the accumulator, which changes nothing.

// f32 activations x bf16 pairs.
struct WidenProduct {
  struct A {
    float even;
    float odd;
  };
  using W = uint16_t;
  static constexpr int kPerStep = 2;  // k values a step.
  static inline Pairs LoadW(const uint16_t* w) { return LoadPairs(w); }
  static inline v16 First(const v16 acc, const Pairs& w, const A& a) { return Fma(Set1(a.odd), w.odd, acc); }
  static inline v16 Second(const v16 acc, const Pairs& w, const A& a) { return Fma(Set1(a.even), w.even, acc); }
};

// f32 x f32.
struct F32Product {
  using A = float;
  using W = float;
  static constexpr int kPerStep = 1;
  static inline v16 LoadW(const float* w) { return Load(w); }
  static inline v16 First(const v16 acc, const v16&, const A&) { return acc; }
  static inline v16 Second(const v16 acc, const v16& w, const A& a) { return Fma(Set1(a), w, acc); }
};

// Accumulators of R rows x G groups of 16 columns stay in registers over `steps` of k.
// kStep: elements of w from step to step; kGroup: from group to group. `scale` (or null) multiplies the loaded
// accumulators.
template <typename P, int R, int G, int kStep, int kGroup, bool kPrefetch>
static inline void Tile(const typename P::A* a, const int64_t a_stride, const typename P::W* w, const int64_t steps,
                        float* acc, const int64_t acc_stride, const bool load, const float* scale,
                        const char* prefetch) {
  v16 c[R][G];
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) {
      c[r][g] = load ? Load(acc + r * acc_stride + g * 16) : Zero();
      if (scale != nullptr) c[r][g] = Mul(c[r][g], Set1(scale[r]));
    }
  }
  for (int64_t s = 0; s < steps; ++s) {
    if constexpr (kPrefetch) {
      for (int g = 0; g < G; ++g) PrefetchFar(prefetch + (s * G + g) * 64);
    }
    for (int g = 0; g < G; ++g) {
      const auto weights = P::LoadW(w + s * kStep + g * kGroup);
      for (int r = 0; r < R; ++r) c[r][g] = P::First(c[r][g], weights, a[r * a_stride + s]);
      for (int r = 0; r < R; ++r) c[r][g] = P::Second(c[r][g], weights, a[r * a_stride + s]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) Store(acc + r * acc_stride + g * 16, c[r][g]);
  }
}

// Row tiles of exactly R rows, all column groups; a stripe of w stays in the first-level cache over the row tiles.
// `prefetch` (or null): memory to bring nearer, 64 bytes a step and group, during the first row tile.
template <typename P, int R, int kStep, int kGroup>
static inline void RowTiles(const int64_t tiles, const typename P::A* a, const int64_t a_stride, const typename P::W* w,
                            const int64_t steps, const int64_t groups, float* acc, const int64_t acc_stride,
                            const bool load, const float* scale, const char* prefetch) {
  constexpr int G = kTileGroups[R];
  for (int64_t g = 0; g < groups;) {
    const bool whole = g + G <= groups;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const typename P::A* rows = a + tile * R * a_stride;
      float* sums = acc + tile * R * acc_stride + g * 16;
      const float* row_scale = scale != nullptr ? scale + tile * R : nullptr;
      if (!whole) {
        Tile<P, R, 1, kStep, kGroup, false>(rows, a_stride, w + g * kGroup, steps, sums, acc_stride, load, row_scale,
                                            nullptr);
      } else if (tile == 0 && prefetch != nullptr) {
        Tile<P, R, G, kStep, kGroup, true>(rows, a_stride, w + g * kGroup, steps, sums, acc_stride, load, row_scale,
                                           prefetch + g * steps * 64);
      } else {
        Tile<P, R, G, kStep, kGroup, false>(rows, a_stride, w + g * kGroup, steps, sums, acc_stride, load, row_scale,
                                            nullptr);
      }
    }
    g += whole ? G : 1;
  }
}

// Any number of rows: full tiles, then one smaller tile. Rows do not meet, so the cut changes no bits.
template <typename P, int kStep, int kGroup>
static inline void Rows(const int64_t rows, const typename P::A* a, const int64_t a_stride, const typename P::W* w,
                        const int64_t steps, const int64_t groups, float* acc, const int64_t acc_stride,
                        const bool load, const float* scale, const char* prefetch) {
  const int64_t full = rows / kMaxTileRows;
  if (full > 0) {
    RowTiles<P, kMaxTileRows, kStep, kGroup>(full, a, a_stride, w, steps, groups, acc, acc_stride, load, scale,
                                             prefetch);
  }
  const int64_t done = full * kMaxTileRows;
  const typename P::A* rest = a + done * a_stride;
  float* sums = acc + done * acc_stride;
  const float* rest_scale = scale != nullptr ? scale + done : nullptr;
  const char* ahead = full > 0 ? nullptr : prefetch;
  switch (rows - done) {
    case 1:
      RowTiles<P, 1, kStep, kGroup>(1, rest, a_stride, w, steps, groups, sums, acc_stride, load, rest_scale, ahead);
      break;
    case 2:
      RowTiles<P, 2, kStep, kGroup>(1, rest, a_stride, w, steps, groups, sums, acc_stride, load, rest_scale, ahead);
      break;
    case 3:
      RowTiles<P, 3, kStep, kGroup>(1, rest, a_stride, w, steps, groups, sums, acc_stride, load, rest_scale, ahead);
      break;
    case 4:
      if constexpr (kMaxTileRows > 4)
        RowTiles<P, 4, kStep, kGroup>(1, rest, a_stride, w, steps, groups, sums, acc_stride, load, rest_scale, ahead);
      break;
    case 5:
      if constexpr (kMaxTileRows > 5)
        RowTiles<P, 5, kStep, kGroup>(1, rest, a_stride, w, steps, groups, sums, acc_stride, load, rest_scale, ahead);
      break;
    default:
      break;
  }
}

// Adds bias and old contents as asked, and stores the valid columns.
static inline void StorePanel(const PanelProduct& p, const float* acc) {
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = 0; c < p.columns; c += 16) {
      const int64_t n = p.columns - c;
      float* out = p.out + r * p.out_stride + c;
      v16 y = Load(acc + r * kPanelColumns + c);
      if (p.bias != nullptr) y = Add(y, LoadUpTo(p.bias + c, n));
      if (p.add) y = Add(LoadUpTo(out, n), y);
      StoreAs(out, 0, false, y, n);
    }
  }
}

template <typename P>
static void PanelProductOf(const PanelProduct& p) {
  constexpr int kLine = kPanelColumns * P::kPerStep;  // Elements of w a step.
  // Few rows: blocks of 16 KiB, so that the panel is read from memory in nearly linear order. Many: 64 KiB, in L2.
  const int64_t block = p.rows <= kMaxTileRows ? 64 : 256;
  const int64_t steps = (p.k + P::kPerStep - 1) / P::kPerStep;
  constexpr int64_t kAhead = 16384;  // Bytes: one block.
  alignas(64) float acc[kBlockRows * kPanelColumns];
  const auto* a = static_cast<const typename P::A*>(p.a);
  const auto* w = static_cast<const typename P::W*>(p.panel);
  for (int64_t s = 0; s < steps; s += block) {
    const char* ahead = reinterpret_cast<const char*>(w + s * kLine) + kAhead;
    Rows<P, kLine, 16 * P::kPerStep>(p.rows, a + s, p.a_stride / P::kPerStep, w + s * kLine, Least(block, steps - s),
                                     kPanelColumns / 16, acc, kPanelColumns, s > 0, nullptr, ahead);
  }
  StorePanel(p, acc);
}

static void PanelProductAny(const PanelProduct& p) {
  switch (p.product) {
    case Product::kBf16:
      PanelProductOf<Bf16Product>(p);
      break;
    case Product::kWiden:
      PanelProductOf<WidenProduct>(p);
      break;
    case Product::kF32:
      PanelProductOf<F32Product>(p);
      break;
  }
}
