// Matrix product of a few rows with one packed panel of 64 outputs.
//   out[r, c] = sum_k a[r, k] w[c, k]
// a  [rows, k] f32 or bf16, `a_stride` elements apart    w  bf16 [k / 2][64][2], or f32 [k][64]; odd k padded with
// zeros Order: one accumulator an output, k ascending; a bf16 pair (2i, 2i+1) enters as fma(even, even', fma(odd, odd',
// acc)), which is what vdpbf16ps computes. Blocks of k store and reload the accumulator, which changes nothing.

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

// Calls run(Constant<count>()); 1 <= count <= kMost.
template <int kMost, typename Run>
static inline void WithConstant(const int64_t count, const Run& run) {
  if constexpr (kMost > 1) {
    if (count < kMost) {
      WithConstant<kMost - 1>(count, run);
      return;
    }
  }
  run(Constant<kMost>());
}

// A product adds kTerms terms a step to each accumulator: term t is LoadW<t>(w) with the activation a.

// f32 activations x bf16 pairs.
struct WidenProduct {
  struct A {
    float even;
    float odd;
  };
  using W = uint16_t;
  static constexpr int kPerStep = 2;  // k values a step.
  static constexpr int kTerms = 2;
  static constexpr int kMostRows = kMaxWideningRows;
  template <int kTerm>
  static inline v16 LoadW(const uint16_t* w) {
    return kTerm == 0 ? LoadPairs(w).odd : LoadPairs(w).even;
  }
  template <int kTerm>
  static inline v16 AddTerm(const v16 acc, const v16& w, const A& a) {
    return Fma(Set1(kTerm == 0 ? a.odd : a.even), w, acc);
  }
};

// f32 x f32.
struct F32Product {
  using A = float;
  using W = float;
  static constexpr int kPerStep = 1;
  static constexpr int kTerms = 1;
  static constexpr int kMostRows = kMaxTileRows;
  template <int kTerm>
  static inline v16 LoadW(const float* w) {
    return Load(w);
  }
  template <int kTerm>
  static inline v16 AddTerm(const v16 acc, const v16& w, const A& a) {
    return Fma(Set1(a), w, acc);
  }
};

// f32 x bf16 pairs already widened: [step][even 16 | odd 16] floats. The same operations as WidenProduct, without the
// cost of widening in every row tile.
struct WidenedProduct {
  using A = WidenProduct::A;
  using W = float;
  static constexpr int kPerStep = 2;
  static constexpr int kTerms = 2;
  static constexpr int kMostRows = kMaxTileRows;
  template <int kTerm>
  static inline v16 LoadW(const float* w) {
    return Load(kTerm == 0 ? w + 16 : w);
  }
  template <int kTerm>
  static inline v16 AddTerm(const v16 acc, const v16& w, const A& a) {
    return WidenProduct::AddTerm<kTerm>(acc, w, a);
  }
};

// The terms from kTerm on of one step, for R rows x `kCount` groups from `first` on.
template <typename P, int kTerm, int kCount, int kGroup, int R, int G>
static inline void AddTerms(v16 (&c)[R][G], const int first, const typename P::A* a, const int64_t a_stride,
                            const typename P::W* w) {
  if constexpr (kTerm < P::kTerms) {
    decltype(P::template LoadW<kTerm>(w)) weights[kCount];
    for (int g = 0; g < kCount; ++g) weights[g] = P::template LoadW<kTerm>(w + (first + g) * kGroup);
    for (int r = 0; r < R; ++r) {
      for (int g = 0; g < kCount; ++g) {
        c[r][first + g] = P::template AddTerm<kTerm>(c[r][first + g], weights[g], a[r * a_stride]);
      }
    }
    AddTerms<P, kTerm + 1, kCount, kGroup>(c, first, a, a_stride, w);
  }
}

// Where sums of some rows begin and where they go.
struct Sums {
  const float* from = nullptr;  // [rows, from_stride]; null: zeros.
  int64_t from_stride = 0;
  const float* scale = nullptr;  // [rows]: multiplies what is loaded; or null.
  float* to = nullptr;           // [rows, to_stride]
  int64_t to_stride = 0;
  bool add = false;  // To what `to` holds, instead of over it.

  Sums At(const int64_t row, const int64_t column) const {
    Sums part = *this;
    if (from != nullptr) part.from += row * from_stride + column;
    if (scale != nullptr) part.scale += row;
    part.to += row * to_stride + column;
    return part;
  }
};

// Sums between memory and registers. Unrolled by hand of the compiler: a loop over `c` would put it on the stack.
template <int R, int G>
[[gnu::always_inline]] static inline void LoadSums(v16 (&c)[R][G], const Sums& sums) {
  if (sums.from != nullptr) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) c[r][g] = Load(sums.from + r * sums.from_stride + g * 16);
    }
  } else {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) c[r][g] = Zero();
    }
  }
  if (sums.scale == nullptr) return;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) c[r][g] = Mul(c[r][g], Set1(sums.scale[r]));
  }
}

template <int R, int G>
[[gnu::always_inline]] static inline void StoreSums(v16 (&c)[R][G], const Sums& sums) {
  if (sums.add) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) c[r][g] = Add(Load(sums.to + r * sums.to_stride + g * 16), c[r][g]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) Store(sums.to + r * sums.to_stride + g * 16, c[r][g]);
  }
}

// Accumulators of R rows x G groups of 16 columns stay in registers over `steps` of k.
// kStep: elements of w from step to step; kGroup: from group to group. Not inlined: registers are allocated for this
// loop alone, so that nothing of it goes through the stack.
template <typename P, int R, int G, int kStep, int kGroup, bool kPrefetch>
[[gnu::noinline]] static void Tile(const typename P::A* a, const int64_t a_stride, const typename P::W* w,
                                   const int64_t steps, const Sums& sums, const char* prefetch) {
  v16 c[R][G];
  LoadSums(c, sums);
  for (int64_t s = 0; s < steps; ++s) {
    if constexpr (kPrefetch) {
      for (int g = 0; g < G; ++g) PrefetchFar(prefetch + (s * G + g) * 64);
    }
    if constexpr (kKeepsWeights) {
      AddTerms<P, 0, G, kGroup>(c, 0, a + s, a_stride, w + s * kStep);
    } else {
      for (int g = 0; g < G; ++g) AddTerms<P, 0, 1, kGroup>(c, g, a + s, a_stride, w + s * kStep);
    }
  }
  StoreSums(c, sums);
}

// When memory is brought nearer while row tiles run: by the first, 64 bytes a step, or a share before each. Few tiles
// cannot hide a burst between them; where there are many, the first would wait for its own lines.
enum class Ahead : uint8_t { kFirst, kEach };

// Row tiles of exactly R rows, all column groups; a stripe of w stays in the first-level cache over the row tiles.
// `prefetch` (or null): memory to bring nearer, 64 bytes a step and group.
template <typename P, int R, int kStep, int kGroup, Ahead kAhead>
static inline void RowTiles(const int64_t tiles, const typename P::A* a, const int64_t a_stride, const typename P::W* w,
                            const int64_t steps, const int64_t groups, const Sums& sums, const char* prefetch) {
  constexpr int G = kTileGroups[R];
  for (int64_t g = 0; g < groups;) {
    const bool whole = g + G <= groups;
    const int64_t lines = steps * (whole ? G : 1);
    const char* ahead = prefetch != nullptr ? prefetch + g * steps * 64 : nullptr;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const typename P::A* rows = a + tile * R * a_stride;
      const Sums part = sums.At(tile * R, g * 16);
      if (kAhead == Ahead::kEach && ahead != nullptr) {
        for (int64_t i = tile * lines / tiles; i < (tile + 1) * lines / tiles; ++i) PrefetchFar(ahead + i * 64);
      }
      if (!whole) {
        Tile<P, R, 1, kStep, kGroup, false>(rows, a_stride, w + g * kGroup, steps, part, nullptr);
      } else if (kAhead == Ahead::kFirst && tile == 0 && ahead != nullptr) {
        Tile<P, R, G, kStep, kGroup, true>(rows, a_stride, w + g * kGroup, steps, part, ahead);
      } else {
        Tile<P, R, G, kStep, kGroup, false>(rows, a_stride, w + g * kGroup, steps, part, nullptr);
      }
    }
    g += whole ? G : 1;
  }
}

// Any number of rows: tiles of nearly equal height. Rows do not meet, so the cut changes no bits.
template <typename P, int kStep, int kGroup, Ahead kAhead = Ahead::kFirst>
static inline void Rows(const int64_t rows, const typename P::A* a, const int64_t a_stride, const typename P::W* w,
                        const int64_t steps, const int64_t groups, const Sums& sums, const char* prefetch) {
  const int64_t tiles = (rows + P::kMostRows - 1) / P::kMostRows;
  const int64_t high = (rows + tiles - 1) / tiles;
  const int64_t count_high = rows - tiles * (high - 1);
  for (int64_t part = 0, done = 0; done < rows; ++part) {
    const int64_t height = part == 0 ? high : high - 1;
    const int64_t count = part == 0 ? count_high : tiles - count_high;
    const char* ahead = part == 0 ? prefetch : nullptr;
    WithConstant<P::kMostRows>(height, [&](auto r) {
      RowTiles<P, decltype(r)::value, kStep, kGroup, kAhead>(count, a + done * a_stride, a_stride, w, steps, groups,
                                                             sums.At(done, 0), ahead);
    });
    done += height * count;
  }
}

// One row tile of WidenProduct that also leaves the widened weights in `stripe` [step][group][odd 16 after even 16] for
// the tiles after it: widening hides behind the products. `prefetch`: as in RowTiles.
template <int R, int G, int kStep, int kGroup, bool kPrefetch>
[[gnu::noinline]] static void WideningTile(const WidenProduct::A* a, const int64_t a_stride, const uint16_t* w,
                                           const int64_t steps, float* stripe, const Sums& sums, const char* prefetch) {
  v16 c[R][G];
  LoadSums(c, sums);
  for (int64_t s = 0; s < steps; ++s) {
    float* wide = stripe + s * G * 32;
    v16 weights[G];
    for (int g = 0; g < G; ++g) {
      if constexpr (kPrefetch) PrefetchFar(prefetch + (s * G + g) * 64);
      weights[g] = LoadPairs(w + s * kStep + g * kGroup).odd;
      Store(wide + g * 32 + 16, weights[g]);
    }
    for (int r = 0; r < R; ++r) {
      for (int g = 0; g < G; ++g) c[r][g] = Fma(Set1(a[r * a_stride + s].odd), weights[g], c[r][g]);
    }
    for (int g = 0; g < G; ++g) {
      weights[g] = LoadPairs(w + s * kStep + g * kGroup).even;
      Store(wide + g * 32, weights[g]);
    }
    for (int r = 0; r < R; ++r) {
      for (int g = 0; g < G; ++g) c[r][g] = Fma(Set1(a[r * a_stride + s].even), weights[g], c[r][g]);
    }
  }
  StoreSums(c, sums);
}

// Steps of a stripe of kWidenGroups groups: kStripeBytes, so that many tiles pass their sums through memory seldom, or
// half of it, so that it and a few whole rows fit the first-level cache.
static constexpr int64_t kMostStripeSteps = kStripeBytes / (kWidenGroups * 32 * 4);
static inline int64_t StripeSteps(const int64_t rows) { return rows <= 24 ? kMostStripeSteps / 2 : kMostStripeSteps; }

// From how many rows on each tile brings a share of the next stripe nearer.
static constexpr int64_t kSpreadFrom = 96;

// Several rows x G groups of columns over at most kMostStripeSteps: widened once into a contiguous stripe that stays in
// the first-level cache over all row tiles.
template <int G, int kStep, int kGroup>
static inline void WidenedGroups(const int64_t rows, const WidenProduct::A* a, const int64_t a_stride,
                                 const uint16_t* w, const int64_t steps, float* stripe, const Sums& sums,
                                 const char* prefetch) {
  if (rows >= kSpreadFrom) {
    WideningTile<kMaxWideningRows, G, kStep, kGroup, false>(a, a_stride, w, steps, stripe, sums, nullptr);
    Rows<WidenedProduct, G * 32, 32, Ahead::kEach>(rows - kMaxWideningRows, a + kMaxWideningRows * a_stride, a_stride,
                                                   stripe, steps, G, sums.At(kMaxWideningRows, 0), prefetch);
    return;
  }
  const int64_t tiles = 1 + Most(0, rows - kMaxWideningRows + kMaxTileRows - 1) / kMaxTileRows;
  const int64_t first = Least(kMaxWideningRows, (rows + tiles - 1) / tiles);
  WithConstant<kMaxWideningRows>(first, [&](auto r) {
    WideningTile<decltype(r)::value, G, kStep, kGroup, true>(a, a_stride, w, steps, stripe, sums, prefetch);
  });
  if (rows == first) return;
  Rows<WidenedProduct, G * 32, 32>(rows - first, a + first * a_stride, a_stride, stripe, steps, G, sums.At(first, 0),
                                   nullptr);
}

// Any number of groups on an instruction set that widens. Same sums as Rows<WidenProduct>; between two blocks of steps
// they lie in `between`, [rows, between_stride], which may be where they go. `prefetch`: memory to bring nearer, 64
// bytes a step and group.
template <int kStep, int kGroup>
static inline void RowsWidened(const int64_t rows, const WidenProduct::A* a, const int64_t a_stride, const uint16_t* w,
                               const int64_t steps, const int64_t groups, const Sums& sums, float* between,
                               const int64_t between_stride, const char* prefetch) {
  alignas(64) float stripe[kStripeBytes / 4];
  const int64_t block = StripeSteps(rows);
  for (int64_t s = 0; s < steps; s += block) {
    const int64_t count = Least(block, steps - s);
    Sums now = sums;
    if (s > 0) now = {between, between_stride, nullptr, sums.to, sums.to_stride, sums.add};
    if (s + count < steps) {
      now.to = between;
      now.to_stride = between_stride;
      now.add = false;
    }
    for (int64_t g = 0; g < groups;) {
      const bool whole = g + kWidenGroups <= groups;
      const auto run = [&](auto width) {
        WidenedGroups<decltype(width)::value, kStep, kGroup>(rows, a + s, a_stride, w + s * kStep + g * kGroup, count,
                                                             stripe, now.At(0, g * 16),
                                                             prefetch + (s * groups + g * count) * 64);
      };
      if (whole) {
        run(Constant<kWidenGroups>());
      } else {
        run(Constant<1>());
      }
      g += whole ? kWidenGroups : 1;
    }
  }
}

// From how many rows on widening pays: where one tile does not take them all.
static constexpr int64_t kWidenFrom = kMaxWideningRows + 1;

// Whether sums can go straight to where they belong: whole vectors, nothing to add but what lies there.
static inline bool GoesStraight(const PanelProduct& p) { return p.columns == kPanelColumns && p.bias == nullptr; }

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

// Where the sums of a panel go in the end.
static inline Sums EndOf(const PanelProduct& p, float* acc) {
  Sums sums{.to = acc, .to_stride = kPanelColumns};
  if (GoesStraight(p)) sums = {.to = p.out, .to_stride = p.out_stride, .add = p.add};
  return sums;
}

// Whether one tile takes all columns of a panel for this many rows, and so reads it once, from front to back.
template <typename P>
static inline bool ReadsInOrder(const int64_t rows) {
  return rows <= P::kMostRows && kTileGroups[rows] * 16 == kPanelColumns;
}

template <typename P>
static void PanelProductOf(const PanelProduct& p) {
  constexpr int kLine = kPanelColumns * P::kPerStep;  // Elements of w a step.
  const int64_t steps = (p.k + P::kPerStep - 1) / P::kPerStep;
  // Few rows read a panel from front to back where a tile takes all of its columns, else in blocks of 16 KiB that stay
  // in the first-level cache over the tiles. Many: 64 KiB, in the second-level cache.
  const bool few = p.rows <= P::kMostRows;
  const bool linear = ReadsInOrder<P>(p.rows);
  const int64_t block = linear ? steps : few ? 64 : 256;
  const int64_t read_ahead = linear ? kReadAhead : 16384;  // Or one block of few rows.
  alignas(64) float acc[kBlockRows * kPanelColumns];
  const Sums between{.to = acc, .to_stride = kPanelColumns};
  const auto* a = static_cast<const typename P::A*>(p.a);
  const auto* w = static_cast<const typename P::W*>(p.panel);
  for (int64_t s = 0; s < steps; s += block) {
    const char* ahead = reinterpret_cast<const char*>(w + s * kLine) + read_ahead;
    Sums sums = s + block < steps ? between : EndOf(p, acc);
    sums.from = s > 0 ? acc : nullptr;
    sums.from_stride = kPanelColumns;
    Rows<P, kLine, 16 * P::kPerStep>(p.rows, a + s, p.a_stride / P::kPerStep, w + s * kLine, Least(block, steps - s),
                                     kPanelColumns / 16, sums, ahead);
  }
  if (!GoesStraight(p)) StorePanel(p, acc);
}

static void PanelProductWidened(const PanelProduct& p) {
  alignas(64) float acc[kBlockRows * kPanelColumns];
  const auto* panel = static_cast<const uint16_t*>(p.panel);
  const auto* ahead = reinterpret_cast<const char*>(panel + StripeSteps(p.rows) * 2 * kPanelColumns);  // One block.
  RowsWidened<2 * kPanelColumns, 32>(p.rows, static_cast<const WidenProduct::A*>(p.a), p.a_stride / 2, panel,
                                     (p.k + 1) / 2, kPanelColumns / 16, EndOf(p, acc), acc, kPanelColumns, ahead);
  if (!GoesStraight(p)) StorePanel(p, acc);
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
