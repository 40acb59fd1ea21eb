// Attention over paged keys and values, and the writing of both.
//   out[r] = softmax(scale q[r] . k[j]) v[j] over visible j
// In a page, KV head after KV head (bf16; f32 alike without pairs):
//   keys [head_dim / 2][64 positions][2], then values [ceil(head_dim / 16)][32 position pairs][16 dims][2]
// so that both products are the matrix kernel: q with keys over dims ascending, weights with values over positions
// ascending. Compressed views: the first blocks come from a body, in this layout or in codes (attend_codes_inl.h); the
// logarithm of a slot's degree is added to its scaled score, 0 where it stands for one position. Order: blocks of 64
// absolute positions ascending with a running maximum, restarted every 1024, partials merged ascending. A row's sums
// stop at its own position: what later places of a page hold never enters.

// Elements of keys and values of one KV head in a page.
static inline int64_t HeadElements(const int64_t head_dim) { return 64 * (head_dim + RoundUp(head_dim, 16)); }

// q_out or k in `y`: norm over the head where weight is given, then rope on pairs (i, i + half).
static inline void NormAndRotate(const float* x, const QkvRow& p, const float* weight, float* y) {
  const int64_t dim = p.head_dim;
  v16 scale = Set1(1.0F);
  if (weight != nullptr) scale = Set1(InverseSqrtOne(DotLanes(x, x, dim) / static_cast<float>(dim) + p.eps));
  for (int64_t i = 0; i < dim; i += 16) {
    v16 value = LoadUpTo(x + i, dim - i);
    if (weight != nullptr) value = Mul(Mul(value, scale), LoadUpTo(weight + i, dim - i));
    StoreAs(y + i, 0, false, value, dim - i);
  }
  for (int64_t i = 0; i < p.half; i += 16) {
    const int64_t n = p.half - i;
    const v16 cos = LoadUpTo(p.cos + i, n);
    const v16 sin = LoadUpTo(p.sin + i, n);
    const v16 first = LoadUpTo(y + i, n);
    const v16 second = LoadUpTo(y + p.half + i, n);
    StoreAs(y + i, 0, false, Sub(Mul(first, cos), Mul(second, sin)), n);
    StoreAs(y + p.half + i, 0, false, Add(Mul(second, cos), Mul(first, sin)), n);
  }
}

static void QkvOneRow(const QkvRow& p) {
  alignas(64) float y[kMaxHeadDim];
  alignas(64) uint16_t rounded[kMaxHeadDim];
  const int64_t dim = p.head_dim;
  for (int64_t h = 0; h < p.heads; ++h) {
    NormAndRotate(p.q + h * p.q_head_stride, p, p.q_norm, y);
    for (int64_t i = 0; i < dim; i += 16) StoreAs(p.q_out, h * dim + i, p.bf16, LoadUpTo(y + i, dim - i), dim - i);
  }
  if (p.page == nullptr) return;
  for (int64_t h = 0; h < p.kv_heads; ++h) {
    NormAndRotate(p.k + h * dim, p, p.k_norm, y);
    const float* v = p.v + h * dim;
    if (!p.bf16) {
      float* keys = reinterpret_cast<float*>(p.page) + h * HeadElements(dim);
      float* values = keys + 64 * dim;
      for (int64_t i = 0; i < dim; ++i) keys[i * 64 + p.place] = y[i];
      for (int64_t i = 0; i < dim; ++i) values[(i / 16 * 64 + p.place) * 16 + i % 16] = v[i];
      continue;
    }
    uint16_t* keys = reinterpret_cast<uint16_t*>(p.page) + h * HeadElements(dim);
    uint16_t* values = keys + 64 * dim;
    for (int64_t i = 0; i < dim; i += 16) StoreAs(rounded, i, true, LoadUpTo(y + i, dim - i), dim - i);
    for (int64_t i = 0; i < dim; ++i) keys[(i / 2 * 64 + p.place) * 2 + i % 2] = rounded[i];
    for (int64_t i = 0; i < dim; i += 16) StoreAs(rounded, i, true, LoadUpTo(v + i, dim - i), dim - i);
    uint16_t* to = values + p.place / 2 * 32 + p.place % 2;
    for (int64_t i = 0; i < dim; ++i) to[i / 16 * 1024 + i % 16 * 2] = rounded[i];
  }
}

// Visible places [first, last] of one block for one position; last < first: none.
struct Visible {
  int64_t first;
  int64_t last;
};
static inline Visible VisiblePlaces(const AttentionTile& t, const int64_t position, const int64_t block) {
  const int64_t start = block * 64;
  const int64_t from = t.window > 0 ? Most(0, position - t.window + 1) : 0;
  return {Most(0, from - start), Least(63, position - start)};
}

// Scores of one row -> weights in product form, running maximum and total, factor for what was summed before. Not
// inlined: as Tile.
template <typename P>
[[gnu::noinline]] static void SoftmaxBlock(const AttentionTile& t, const AttentionPartial& p, const int64_t row,
                                           const Visible seen, const float* log_degrees) {
  float* scores = t.scores + row * 64;
  v16 s[4];
  for (int i = 0; i < 4; ++i) {
    s[i] = Mul(Load(scores + i * 16), Set1(t.scale));
    if (log_degrees != nullptr) s[i] = Add(s[i], Load(log_degrees + i * 16));
    if (seen.first > 0 || seen.last < 63) {
      const int begin = static_cast<int>(seen.first) - i * 16;
      const int end = static_cast<int>(seen.last) + 1 - i * 16;
      s[i] = KeepLanes(s[i], begin, end, -__builtin_inff());
    }
  }
  const float before = p.largest[row];
  const float block = MaxLanes(Max(Max(s[0], s[1]), Max(s[2], s[3])));
  const float largest = before > block ? before : block;
  for (int i = 0; i < 4; ++i) s[i] = Exp(Sub(s[i], Set1(largest)));
  const float total = SumLanes(Add(Add(s[0], s[1]), Add(s[2], s[3])));
  t.correction[row] = ExpOne(before - largest);
  p.largest[row] = largest;
  p.total[row] = p.total[row] * t.correction[row] + total;
  for (int i = 0; i < 4; ++i) {
    if constexpr (P::kPerStep == 1) {
      Store(t.weights + row * 64 + i * 16, s[i]);
    } else if constexpr (kExpands) {
      Store(t.weights + row * 64 + i * 16, RoundBf16(s[i]));
    } else {
      StoreBf16(reinterpret_cast<uint16_t*>(t.weights) + row * 64 + i * 16, s[i]);
    }
  }
}

// Whether memory's way is what few rows wait for. Where values must be widened, one group after another is a chain of
// sums that keeps them longer (44 % of the read rate of Emerald Rapids; groups together, and the next block brought
// meanwhile: 72 %).
template <typename P>
static inline bool ReadsValuesInOrder(const int64_t rows) {
  return !kExpands && ReadsInOrder<P>(rows);
}

// Weights of R rows times all groups of values, one group after another as they lie (reading_inl.h): between them
// nothing but the sums, which the first-level cache holds. Not inlined: as Tile.
template <typename P, int R, int kStep, int kGroup>
[[gnu::noinline]] static void GroupsInOrder(const typename P::A* weights, const int64_t stride,
                                            const typename P::W* values, const int64_t steps, const int64_t groups,
                                            const Sums& all) {
  const Sums sums = all;  // A copy: no store can change it.
  for (int64_t g = 0; g < groups; ++g) {
    v16 c[R][1];
    LoadSums(c, sums.At(0, g * 16));
    const typename P::W* w = values + g * kGroup;
    for (int64_t s = 0; s < steps; ++s) AddTerms<P, 0, 1, kGroup>(c, 0, weights + s, stride, w + s * kStep);
    StoreSums(c, sums.At(0, g * 16));
  }
}

// Weights of rows [begin, end), all seeing places [first, last], times values, added to the corrected partial values.
template <typename P>
static inline void AddValues(const AttentionTile& t, const AttentionPartial& p, const int64_t begin, const int64_t rows,
                             const typename P::W* values, const Visible seen, const char* prefetch) {
  constexpr int kStep = 16 * P::kPerStep;
  constexpr int64_t kRowSteps = 64 / P::kPerStep;  // Elements of P::A in one row of weights.
  constexpr int kGroup = kStep * static_cast<int>(kRowSteps);
  const int64_t groups = p.value_stride / 16;
  const auto* weights = reinterpret_cast<const typename P::A*>(t.weights) + begin * kRowSteps;
  float* values_so_far = p.values + begin * p.value_stride;
  const Sums sums{.from = values_so_far,
                  .from_stride = p.value_stride,
                  .scale = t.correction + begin,
                  .to = values_so_far,
                  .to_stride = p.value_stride};
  const int64_t from = seen.first / P::kPerStep;
  const int64_t to = (seen.last + 1) / P::kPerStep;  // Whole steps.
  bool widened = false;
  if constexpr (kExpands && P::kPerStep == 2) {
    widened = rows >= kWidenFrom && to > from;  // Without steps only the correction remains: Rows applies it.
    if (widened) {
      RowsWidened<kStep, kGroup>(rows, weights + from, kRowSteps, values + from * kStep, to - from, groups, sums,
                                 values_so_far, p.value_stride,
                                 prefetch != nullptr ? prefetch : reinterpret_cast<const char*>(values));
    }
  }
  if (ReadsValuesInOrder<P>(rows)) {
    WithConstant<P::kMostRows>(rows, [&](auto r) {
      GroupsInOrder<P, decltype(r)::value, kStep, kGroup>(weights + from, kRowSteps, values + from * kStep, to - from,
                                                          groups, sums);
    });
  } else if (!widened) {
    Rows<P, kStep, kGroup>(rows, weights + from, kRowSteps, values + from * kStep, to - from, groups, sums, prefetch);
  }
  if (P::kPerStep == 1 || (seen.last + 1) % 2 == 0) return;
  // The last position has no partner yet: its pair enters with the partner cleared.
  typename P::W last[kStep];
  for (int64_t g = 0; g < groups; ++g) {
    const typename P::W* pair = values + g * kGroup + to * kStep;
    for (int i = 0; i < kStep; ++i) last[i] = i % P::kPerStep == 0 ? pair[i] : typename P::W{};
    Sums more = sums.At(0, g * 16);
    more.scale = nullptr;
    Rows<P, kStep, kGroup>(rows, weights + to, kRowSteps, last, 1, 1, more, nullptr);
  }
}

template <typename P>
static inline void AttendBlock(const AttentionTile& t, const AttentionPartial& p, const int64_t block,
                               const std::byte* next) {
  using W = typename P::W;
  constexpr int kLine = 64 * P::kPerStep;
  // Tokens that see anything of this block: at or after its start, and not past it by more than the window.
  int64_t token = 0;
  int64_t end = t.tokens;
  while (token < end && VisiblePlaces(t, t.first_position + token, block).last < 0) ++token;
  while (end > token && VisiblePlaces(t, t.first_position + end - 1, block).first > 63) --end;
  if (token == end) return;
  const auto* keys = reinterpret_cast<const W*>(BlockAt(t, block));
  const W* values = keys + 64 * t.head_dim;
  const float* log_degrees = LogDegreesOf(t, block);
  const int64_t begin_row = token * t.group;
  const int64_t rows = (end - token) * t.group;
  const int64_t steps = t.head_dim / P::kPerStep;
  const auto* queries = static_cast<const typename P::A*>(t.q) + begin_row * steps;
  float* scores = t.scores + begin_row * 64;
  const Sums products{.to = scores, .to_stride = 64};
  const bool in_order = ReadsValuesInOrder<P>(rows);
  if constexpr (kExpands && P::kPerStep == 2) {
    if (rows >= kWidenFrom)
      RowsWidened<kLine, 32>(rows, queries, steps, keys, steps, 4, products, scores, 64,
                             reinterpret_cast<const char*>(values));
  }
  if (!kExpands || P::kPerStep == 1 || rows < kWidenFrom) {
    Rows<P, kLine, 16 * P::kPerStep>(rows, queries, steps, keys, steps, 4, products,
                                     in_order ? nullptr : reinterpret_cast<const char*>(values));
  }
  bool whole = true;
  for (int64_t i = token; i < end; ++i) {
    const Visible seen = VisiblePlaces(t, t.first_position + i, block);
    whole = whole && seen.first == 0 && seen.last == 63;
    for (int64_t h = 0; h < t.group; ++h) SoftmaxBlock<P>(t, p, i * t.group + h, seen, log_degrees);
  }
  // In order, only where to go on must be told; more than its first lines are in the way of the stream that is read.
  const char* ahead = reinterpret_cast<const char*>(next);
  for (int64_t i = 0; in_order && i < kLinesOfNext * 64; i += 64) PrefetchFar(ahead + i);
  if (whole) {
    AddValues<P>(t, p, begin_row, rows, values, {0, 63}, ahead);
    return;
  }
  for (int64_t i = token; i < end; ++i) {
    AddValues<P>(t, p, i * t.group, t.group, values, VisiblePlaces(t, t.first_position + i, block), nullptr);
  }
}

// Of one KV head: the partial begun, and the blocks in codes.
static void BeginSuperblock(const AttentionTile& t, const AttentionPartial& p, const int64_t superblock,
                            const int64_t first, const int64_t coded_end) {
  const int64_t rows = t.tokens * t.group;
  for (int64_t r = 0; r < rows; ++r) {
    p.largest[r] = -__builtin_inff();
    p.total[r] = 0.0F;
  }
  for (int64_t i = 0; i < rows * p.value_stride; ++i) p.values[i] = 0.0F;
  if (first == coded_end) return;
  PrepareQueries(t);
  AttendCodes(t, p, first, coded_end, superblock);
}

// The tiles of neighbouring KV heads, which differ in nothing else, block by block.
static void AttentionSuperblock(const AttentionTile* tiles, const AttentionPartial* partials, const int64_t heads,
                                const int64_t superblock) {
  const AttentionTile& t = tiles[0];
  const int64_t from = t.window > 0 ? Most(0, t.first_position - t.window + 1) : 0;
  const int64_t first = Most(superblock * 16, from / 64);
  const int64_t last = Least(superblock * 16 + 15, (t.first_position + t.tokens - 1) / 64);
  const int64_t coded = t.body.head.key_bits > 0 ? t.body.pages : 0;
  const int64_t dense = Most(first, Least(last + 1, coded));
  for (int64_t h = 0; h < heads; ++h) BeginSuperblock(tiles[h], partials[h], superblock, first, dense);
  for (int64_t block = dense; block <= last; ++block) {
    for (int64_t h = 0; h < heads; ++h) {
      const std::byte* next = h + 1 < heads ? BlockAt(tiles[h + 1], block) : BlockAt(t, Least(block + 1, last));
      if (t.bf16) {
        AttendBlock<Bf16Product>(tiles[h], partials[h], block, next);
      } else {
        AttendBlock<F32Product>(tiles[h], partials[h], block, next);
      }
    }
  }
}

static void AttentionMerge(const AttentionPartial& into, const AttentionPartial& from, const int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    if (from.largest[r] == -__builtin_inff()) continue;
    const float largest = into.largest[r] > from.largest[r] ? into.largest[r] : from.largest[r];
    const float keep = ExpOne(into.largest[r] - largest);
    const float take = ExpOne(from.largest[r] - largest);
    into.largest[r] = largest;
    into.total[r] = into.total[r] * keep + from.total[r] * take;
    float* sums = into.values + r * into.value_stride;
    const float* more = from.values + r * from.value_stride;
    for (int64_t i = 0; i < into.value_stride; i += 16) {
      Store(sums + i, Fma(Load(more + i), Set1(take), Mul(Load(sums + i), Set1(keep))));
    }
  }
}

// Adding zero first turns -0 into +0: whether a masked place added a zero cannot be seen.
static void AttentionFinish(const float* values, const float total, const float* gate, const int64_t n, void* out,
                            const bool bf16) {
  for (int64_t i = 0; i < n; i += 16) {
    v16 y = Div(Add(LoadUpTo(values + i, n - i), Zero()), Set1(total));
    if (gate != nullptr) y = Mul(y, Sigmoid(LoadUpTo(gate + i, n - i)));
    StoreAs(out, i, bf16, y, n - i);
  }
}
