// Matrix product of a few rows with one packed panel of 64 outputs.
//   out[r, c] = sum_k a[r, k] w[c, k]
// a  [rows, k] f32 or bf16, `a_stride` elements apart    w  bf16 [k / 2][64][2], or f32 [k][64]; odd k padded with
// zeros Order: one accumulator an output, k ascending; a bf16 pair (2i, 2i+1) enters as fma(even, even', fma(odd, odd',
// acc)), which is what vdpbf16ps computes. Blocks of k store and reload the accumulator, which changes nothing.

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

// f32 activations x bf16 pairs.
struct WidenProduct {
  struct A {
    float even;
    float odd;
  };
  using W = uint16_t;
  static constexpr int kPerStep = 2;  // k values a step.
  static constexpr int kMostRows = kMaxWideningRows;
  static inline Pairs LoadW(const uint16_t* w) { return LoadPairs(w); }
  static inline v16 First(const v16 acc, const Pairs& w, const A& a) { return Fma(Set1(a.odd), w.odd, acc); }
  static inline v16 Second(const v16 acc, const Pairs& w, const A& a) { return Fma(Set1(a.even), w.even, acc); }
};

// f32 x f32.
struct F32Product {
  using A = float;
  using W = float;
  static constexpr int kPerStep = 1;
  static constexpr int kMostRows = kMaxTileRows;
  static inline v16 LoadW(const float* w) { return Load(w); }
  static inline v16 First(const v16 acc, const v16&, const A&) { return acc; }
  static inline v16 Second(const v16 acc, const v16& w, const A& a) { return Fma(Set1(a), w, acc); }
};

// f32 x bf16 pairs already widened: [step][even 16 | odd 16] floats. The same operations as WidenProduct, without the
// cost of widening in every row tile.
struct WidenedPair {
  const float* at;
};
struct WidenedProduct {
  using A = WidenProduct::A;
  using W = float;
  static constexpr int kPerStep = 2;
  static constexpr int kMostRows = kMaxTileRows;
  static inline WidenedPair LoadW(const float* w) { return {w}; }
  static inline v16 First(const v16 acc, const WidenedPair& w, const A& a) {
    return Fma(Set1(a.odd), Load(w.at + 16), acc);
  }
  static inline v16 Second(const v16 acc, const WidenedPair& w, const A& a) {
    return Fma(Set1(a.even), Load(w.at), acc);
  }
};

// Accumulators of R rows x G groups of 16 columns stay in registers over `steps` of k.
// kStep: elements of w from step to step; kGroup: from group to group. `scale` (or null) multiplies the loaded
// accumulators. Not inlined: registers are allocated for this loop alone, so that nothing of it goes through the stack.
template <typename P, int R, int G, int kStep, int kGroup, bool kPrefetch>
[[gnu::noinline]] static void Tile(const typename P::A* a, const int64_t a_stride, const typename P::W* w,
                                   const int64_t steps, float* acc, const int64_t acc_stride, const bool load,
                                   const float* scale, const char* prefetch) {
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

// Any number of rows: tiles of nearly equal height. Rows do not meet, so the cut changes no bits.
template <typename P, int kStep, int kGroup>
static inline void Rows(const int64_t rows, const typename P::A* a, const int64_t a_stride, const typename P::W* w,
                        const int64_t steps, const int64_t groups, float* acc, const int64_t acc_stride,
                        const bool load, const float* scale, const char* prefetch) {
  const int64_t tiles = (rows + P::kMostRows - 1) / P::kMostRows;
  const int64_t high = (rows + tiles - 1) / tiles;
  const int64_t count_high = rows - tiles * (high - 1);
  for (int64_t part = 0, done = 0; done < rows; ++part) {
    const int64_t height = part == 0 ? high : high - 1;
    const int64_t count = part == 0 ? count_high : tiles - count_high;
    const typename P::A* from = a + done * a_stride;
    float* sums = acc + done * acc_stride;
    const float* factors = scale != nullptr ? scale + done : nullptr;
    const char* ahead = part == 0 ? prefetch : nullptr;
    const auto run = [&](auto r) {
      RowTiles<P, decltype(r)::value, kStep, kGroup>(count, from, a_stride, w, steps, groups, sums, acc_stride, load,
                                                     factors, ahead);
    };
    switch (height) {
      case 1:
        run(Constant<1>());
        break;
      case 2:
        run(Constant<2>());
        break;
      case 3:
        run(Constant<3>());
        break;
      case 4:
        run(Constant<4>());
        break;
      case 5:
        if constexpr (P::kMostRows >= 5) run(Constant<5>());
        break;
      default:
        if constexpr (P::kMostRows >= 6) run(Constant<6>());
        break;
    }
    done += height * count;
  }
}

// One row tile of WidenProduct that also leaves the widened weights in `stripe` for the tiles after it: widening hides
// behind the products. 16 columns; `prefetch` (or null) as in RowTiles.
template <int R, int kStep>
[[gnu::noinline]] static void WideningTile(const WidenProduct::A* a, const int64_t a_stride, const uint16_t* w,
                                           const int64_t steps, float* stripe, float* acc, const int64_t acc_stride,
                                           const bool load, const float* scale, const char* prefetch) {
  v16 c[R];
  for (int r = 0; r < R; ++r) {
    c[r] = load ? Load(acc + r * acc_stride) : Zero();
    if (scale != nullptr) c[r] = Mul(c[r], Set1(scale[r]));
  }
  for (int64_t s = 0; s < steps; ++s) {
    PrefetchFar(prefetch + s * 64);
    const Pairs pair = LoadPairs(w + s * kStep);
    Store(stripe + s * 32 + 16, pair.odd);
    for (int r = 0; r < R; ++r) c[r] = Fma(Set1(a[r * a_stride + s].odd), pair.odd, c[r]);
    Store(stripe + s * 32, pair.even);
    for (int r = 0; r < R; ++r) c[r] = Fma(Set1(a[r * a_stride + s].even), pair.even, c[r]);
  }
  for (int r = 0; r < R; ++r) Store(acc + r * acc_stride, c[r]);
}

// Steps of a stripe: 8 KiB, so that it and a few whole rows fit the first-level cache, or 16 KiB, so that many tiles
// pass their sums through memory half as often.
static constexpr int64_t kMostStripeSteps = 128;
static inline int64_t StripeSteps(const int64_t rows) { return rows <= 24 ? kMostStripeSteps / 2 : kMostStripeSteps; }

// Several rows on an instruction set that widens: one group of 16 columns at a time, widened once into a contiguous
// stripe that stays in the first-level cache over all row tiles. Same sums as Rows<WidenProduct>. `prefetch`: memory to
// bring nearer, 64 bytes a step and group.
template <int kStep, int kGroup>
static inline void RowsWidened(const int64_t rows, const WidenProduct::A* a, const int64_t a_stride, const uint16_t* w,
                               const int64_t steps, const int64_t groups, float* acc, const int64_t acc_stride,
                               const bool load, const float* scale, const char* prefetch) {
  static_assert(!kExpands || kMaxWideningRows <= 5, "the switch below names every lower height");
  alignas(64) float stripe[kMostStripeSteps * 32];
  const int64_t block = StripeSteps(rows);
  const int64_t tiles = 1 + Most(0, rows - kMaxWideningRows + kMaxTileRows - 1) / kMaxTileRows;
  const int64_t first = Least(kMaxWideningRows, (rows + tiles - 1) / tiles);
  for (int64_t s = 0; s < steps; s += block) {
    const int64_t count = Least(block, steps - s);
    const float* factors = s == 0 ? scale : nullptr;
    for (int64_t g = 0; g < groups; ++g) {
      const auto run = [&](auto r) {
        WideningTile<decltype(r)::value, kStep>(a + s, a_stride, w + s * kStep + g * kGroup, count, stripe,
                                                acc + g * 16, acc_stride, load || s > 0, factors,
                                                prefetch + (s * groups + g * count) * 64);
      };
      switch (first) {
        case 1:
          run(Constant<1>());
          break;
        case 2:
          run(Constant<2>());
          break;
        case 3:
          run(Constant<3>());
          break;
        case 4:
          run(Constant<4>());
          break;
        default:
          run(Constant<kMaxWideningRows>());
          break;
      }
      if (rows > first) {
        Rows<WidenedProduct, 32, 0>(rows - first, a + first * a_stride + s, a_stride, stripe, count, 1,
                                    acc + first * acc_stride + g * 16, acc_stride, load || s > 0,
                                    factors != nullptr ? factors + first : nullptr, nullptr);
      }
    }
  }
}

// From how many rows on widening pays: where one tile does not take them all.
static constexpr int64_t kWidenFrom = kMaxWideningRows + 1;

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
  const int64_t block = p.rows <= P::kMostRows ? 64 : 256;
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

static void PanelProductWidened(const PanelProduct& p) {
  alignas(64) float acc[kBlockRows * kPanelColumns];
  const auto* panel = static_cast<const uint16_t*>(p.panel);
  const auto* ahead = reinterpret_cast<const char*>(panel + StripeSteps(p.rows) * 2 * kPanelColumns);  // One block.
  RowsWidened<2 * kPanelColumns, 32>(p.rows, static_cast<const WidenProduct::A*>(p.a), p.a_stride / 2, panel,
                                     (p.k + 1) / 2, kPanelColumns / 16, acc, kPanelColumns, false, nullptr, ahead);
  StorePanel(p, acc);
}

static void PanelProductAny(const PanelProduct& p) {
  if (kExpands && p.product != Product::kF32 && p.rows >= kWidenFrom) {
    PanelProductWidened(p);
    return;
  }
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
