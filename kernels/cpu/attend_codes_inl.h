// Attention over one encoded block of a compressed view (kernels/kv_encoding.h), without decoding it: codes are
// multiplied as they are with queries and weights in whole numbers of 16 bits, and ranges are applied to the sums.
//   keys    q.k[s] = unit (scale[s] sum_i Q_i (code - 128))              8 bits: Q = nearest(q / unit), once a row
//                  = unit (top sum_i Q_i code + sum_i (q_i / unit) zero_i)   else: Q = nearest(q / unit * scale_i /
//                  top)
//   values  out[d] = step sum_s W_s (code - 128)                         8 bits: W = nearest(w_s scale[s] / step)
//                  = step sum_s W_s code + sum_s w_s zero_s                  else, for each 32 dims
// unit: of a row, largest |q| / levels; top: largest scale of a page's channels; step: largest scale of its slots over
// levels; w = exp(score - the block's largest), so that the largest weight is 1. 16 bits err by 2^-16 of the largest
// query and weight: less than bf16 rounds either by.
// Sums of whole numbers are exact: any instruction and order gives the same bits. Floats: one operation each, sums over
// dims and slots in sixteen lanes ascending, then by halves. A block's values enter the partial once, times
// exp(block's largest - running one). All rows see all of the block.

static constexpr float kBias = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number, which the low bits are.
static constexpr int64_t kRangeDims = 32;    // Dims of values that share ranges: two tiles.
static constexpr int64_t kTile = 64;         // Bytes.

// Sums of up to 512 products with codes - 128 stay inside 32 bits; of longer rows with half the levels. High bytes of
// numbers end at 127.
static inline float LevelsOf(const int64_t dim) { return dim <= 512 ? 32639.0F : 16319.0F; }
static constexpr float kWeightLevels = 32639.0F;

static inline v16 FirstLanes(const v16& a, const int64_t n) {
  return n >= 16 ? a : KeepLanes(a, 0, static_cast<int>(n), 0.0F);
}

static inline v16 QueryAt(const AttentionTile& t, const int64_t row, const int64_t i) {
  const int64_t at = row * t.head_dim + i;
  if constexpr (!kExpands) {
    if (t.bf16) return FirstLanes(LoadBf16(static_cast<const uint16_t*>(t.q) + at), t.head_dim - i);
  }
  return FirstLanes(Load(static_cast<const float*>(t.q) + at), t.head_dim - i);
}

// Queries as multiples of their unit, and for keys of 8 bits their numbers. A query that is no number, or infinite, has
// no number as its unit.
static void PrepareQueries(const AttentionTile& t) {
  const CodedScratch& c = t.body.coded;
  const float levels = LevelsOf(t.head_dim);
  for (int64_t r = 0; r < t.tokens * t.group; ++r) {
    float* query = c.queries + r * c.dims;
    v16 most = Zero();
    v16 poison = Zero();
    for (int64_t i = 0; i < t.head_dim; i += 16) {
      const v16 q = QueryAt(t, r, i);
      most = Max(most, Max(q, Sub(Zero(), q)));
      poison = Add(poison, Mul(q, Zero()));
    }
    const float bad = SumLanes(poison);
    const float largest = MaxLanes(most);
    const bool counts = bad == 0.0F && largest >= 1e-30F;
    c.units[r] = (counts ? largest / levels : bad) * t.scale;
    const v16 factor = Set1(counts ? levels / largest : 0.0F);
    v16 sum = Zero();
    for (int64_t i = 0; i < t.head_dim; i += 16) {
      const v16 q = counts ? Mul(QueryAt(t, r, i), factor) : Zero();
      Store(query + i, q);
      if (t.body.head.key_bits < 8) continue;
      const v16 biased = Add(q, Set1(kBias));
      PutNumbers(c.query_numbers + r * 2 * c.dims, c.dims, i, biased);
      sum = Add(sum, Sub(biased, Set1(kBias)));
    }
    c.offsets[r] = 128 * static_cast<int32_t>(SumLanes(sum));
  }
}

// Sixteen f16 from `index` on; zeros behind `count`.
static inline v16 RangesAt(const std::byte* from, const int64_t index, const int64_t count) {
  return FirstLanes(LoadF16(from + 2 * index), count - index);
}

// The largest of [0, count), which are not negative.
static inline float LargestOf(const std::byte* scales, const int64_t count) {
  v16 most = Zero();
  for (int64_t i = 0; i < count; i += 16) most = Max(most, RangesAt(scales, i, count));
  return MaxLanes(most);
}

// What all rows need of a page's ranges.
static void PrepareRanges(const AttentionTile& t, const EncodedHeadBlock& head) {
  const CodedScratch& c = t.body.coded;
  const std::byte* keys = head.block + head.key_ranges;
  if (head.key_bits == 8) {
    for (int64_t s = 0; s < 64; s += 16) Store(c.key_scales + s, LoadF16(keys + 2 * s));
  } else {
    const int64_t dims = RoundUp(t.head_dim, 4);
    for (int64_t g = 0; g < 64 / head.key_group; ++g) {
      const std::byte* zeros = keys + g * 4 * dims;
      const std::byte* scales = zeros + 2 * dims;
      const float top = LargestOf(scales, t.head_dim);
      c.key_tops[g] = top;
      const v16 share = Set1(top > 0.0F ? 1.0F / top : 0.0F);
      for (int64_t i = 0; i < t.head_dim; i += 16) {
        Store(c.key_zeros + g * c.dims + i, RangesAt(zeros, i, t.head_dim));
        Store(c.key_scales + g * c.dims + i, Mul(RangesAt(scales, i, t.head_dim), share));
      }
    }
  }
  const std::byte* values = head.block + head.value_ranges;
  const int64_t groups = head.value_bits == 8 ? 1 : RoundUp(t.head_dim, kRangeDims) / kRangeDims;
  for (int64_t g = 0; g < groups; ++g) {
    const std::byte* zeros = values + g * 4 * 64;
    const std::byte* scales = head.value_bits == 8 ? values : zeros + 2 * 64;
    const float most = LargestOf(scales, 64);
    c.value_steps[g] = most / kWeightLevels;
    const v16 share = Set1(most > 0.0F ? kWeightLevels / most : 0.0F);
    for (int64_t s = 0; s < 64; s += 16) {
      Store(c.value_scales + g * 64 + s, Mul(LoadF16(scales + 2 * s), share));
      if (head.value_bits < 8) Store(c.value_zeros + g * 64 + s, LoadF16(zeros + 2 * s));
    }
  }
}

// What comes next is brought closer a few lines at a time, as the loops' own strides hide it from the processor.
struct NextLines {
  const char* at;
  const char* end;

  void Bring() {
    if (at >= end) return;
    PrefetchNear(at);
    PrefetchNear(at + 64);
    at += 128;
  }
};

// Sums of two tiles for some rows. Not an array, so that they are registers.
template <int kRows>
struct TileSums {
  CodeSums a;
  CodeSums b;
  TileSums<kRows - 1> others;

  // `numbers`: of the first row, the next one's 2 * room bytes further.
  void Add(const Codes& first, const Codes& second, const std::byte* numbers, const int64_t room, const int64_t group) {
    const Numbers four = LoadNumbers(numbers, room, group);
    a.Add(first, four);
    b.Add(second, four);
    others.Add(first, second, numbers + 2 * room, room, group);
  }
  // visit(row, sums of a tile, which of the two)
  template <typename Visit>
  void ForEach(const int64_t row, const Visit& visit) const {
    visit(row, a, 0);
    visit(row, b, 1);
    others.ForEach(row + 1, visit);
  }
};
template <>
struct TileSums<0> {
  void Add(const Codes&, const Codes&, const std::byte*, int64_t, int64_t) {}
  template <typename Visit>
  void ForEach(int64_t, const Visit&) const {}
};

// The two tiles of key codes of slots 32 pair .. 32 pair + 31, four dims.
template <int kBits, int kPair>
static inline void LoadKeyTiles(const std::byte* codes, Codes& a, Codes& b) {
  if constexpr (kBits == 8) {
    a = LoadCodes<8, 0>(codes + 2 * kPair * kTile);
    b = LoadCodes<8, 0>(codes + (2 * kPair + 1) * kTile);
  } else if constexpr (kBits == 4) {
    a = LoadCodes<4, 0>(codes + kPair * kTile);
    b = LoadCodes<4, 1>(codes + kPair * kTile);
  } else {
    a = LoadCodes<2, 2 * kPair>(codes);
    b = LoadCodes<2, 2 * kPair + 1>(codes);
  }
}

// Scores of 32 slots of kRows rows, times the scale of attention.
template <int kBits, int kRows, int kPair>
static inline void PairScores(const AttentionTile& t, const EncodedHeadBlock& head, const int64_t row,
                              NextLines& ahead) {
  const CodedScratch& c = t.body.coded;
  const std::byte* numbers = c.query_numbers + row * 2 * c.dims;
  TileSums<kRows> sums;
  const int64_t groups = (t.head_dim + 3) / 4;
  for (int64_t g = 0; g < groups; ++g) {
    ahead.Bring();
    Codes a;
    Codes b;
    LoadKeyTiles<kBits, kPair>(head.block + g * (kTile * kBits / 2), a, b);
    sums.Add(a, b, numbers, c.dims, g);
  }
  sums.ForEach(row, [&](const int64_t r, const CodeSums& sum, const int64_t which) {
    const int64_t s = 32 * kPair + 16 * which;
    const v16 unit = Set1(c.units[r]);
    if constexpr (kBits == 8) {
      Store(t.scores + r * 64 + s, Mul(Mul(sum.Floats(c.offsets[r]), Load(c.key_scales + s)), unit));
    } else {
      const v16 top = Set1(c.key_tops[head.key_group == 64 ? 0 : kPair]);
      Store(t.scores + r * 64 + s, Mul(Fma(sum.Floats(0), top, Set1(c.zero_dots[r])), unit));
    }
  });
}

// Numbers of queries against keys with ranges: other ones for every range of slots.
static inline void ScaleQueries(const AttentionTile& t, const int64_t row, const int64_t rows, const int64_t half) {
  const CodedScratch& c = t.body.coded;
  for (int64_t r = row; r < row + rows; ++r) {
    v16 dot = Zero();
    for (int64_t i = 0; i < t.head_dim; i += 16) {
      const v16 q = Load(c.queries + r * c.dims + i);
      dot = Fma(q, Load(c.key_zeros + half * c.dims + i), dot);
      PutNumbers(c.query_numbers + r * 2 * c.dims, c.dims, i,
                 Fma(q, Load(c.key_scales + half * c.dims + i), Set1(kBias)));
    }
    c.zero_dots[r] = SumLanes(dot);
  }
}

template <int kBits, int kRows>
static inline void Scores(const AttentionTile& t, const EncodedHeadBlock& head, const int64_t row, NextLines& ahead) {
  if (kBits < 8) ScaleQueries(t, row, kRows, 0);
  PairScores<kBits, kRows, 0>(t, head, row, ahead);
  if (kBits < 8 && head.key_group < 64) ScaleQueries(t, row, kRows, 1);
  PairScores<kBits, kRows, 1>(t, head, row, ahead);
}

// Weights of rows relative to their largest scores of the block, and what partials and the block count for from now on.
template <int kRows>
static inline void WeighCoded(const AttentionTile& t, const AttentionPartial& p, const int64_t row,
                              const float* log_degrees) {
  static_assert(2 * kRows <= 16);
  alignas(64) float counts[16] = {};
  float totals[kRows];
  for (int r = 0; r < kRows; ++r) {
    const float* scores = t.scores + (row + r) * 64;
    float* weights = t.weights + (row + r) * 64;
    v16 s[4];
    for (int i = 0; i < 4; ++i) {
      s[i] = Load(scores + i * 16);
      if (log_degrees != nullptr) s[i] = Add(s[i], Load(log_degrees + i * 16));
    }
    const float block = MaxLanes(Max(Max(s[0], s[1]), Max(s[2], s[3])));
    for (int i = 0; i < 4; ++i) {
      s[i] = Exp(Sub(s[i], Set1(block)));
      Store(weights + i * 16, s[i]);
    }
    totals[r] = SumLanes(Add(Add(s[0], s[1]), Add(s[2], s[3])));
    const float before = p.largest[row + r];
    const float largest = before > block ? before : block;
    p.largest[row + r] = largest;
    counts[2 * r] = before - largest;
    counts[2 * r + 1] = block - largest;
  }
  Store(counts, Exp(Load(counts)));
  for (int r = 0; r < kRows; ++r) {
    t.correction[row + r] = counts[2 * r];
    t.body.coded.takes[row + r] = counts[2 * r + 1];
    p.total[row + r] = p.total[row + r] * counts[2 * r] + totals[r] * counts[2 * r + 1];
  }
}

// Numbers of a row's weights for one group of dims; offsets and sums of zeros.
template <int kBits>
static inline void ScaleWeights(const AttentionTile& t, const int64_t row, const int64_t group) {
  const CodedScratch& c = t.body.coded;
  v16 sum = Zero();
  for (int64_t s = 0; s < 64; s += 16) {
    const v16 w = Load(t.weights + row * 64 + s);
    const v16 biased = Fma(w, Load(c.value_scales + group * 64 + s), Set1(kBias));
    PutNumbers(c.weight_numbers + row * 2 * 64, 64, s, biased);
    sum = kBits == 8 ? Add(sum, Sub(biased, Set1(kBias))) : Fma(w, Load(c.value_zeros + group * 64 + s), sum);
  }
  const float total = SumLanes(sum);
  if (kBits == 8) {
    c.weight_offsets[row] = 128 * static_cast<int32_t>(total == total ? total : 0.0F);
  } else {
    c.zero_dots[row] = total;
  }
}

template <int kBits, int kPart, int kRows>
static inline void AddValueTiles(const CodedScratch& c, const int64_t row, const std::byte* a, const std::byte* b,
                                 const int64_t group, TileSums<kRows>& sums) {
  sums.Add(LoadCodes<kBits, kPart>(a), LoadCodes<kBits, kPart>(b), c.weight_numbers + row * 2 * 64, 64, group);
}

// Values of 32 dims of kRows rows.
template <int kBits, int kRows>
static inline void AddCodedDims(const AttentionTile& t, const AttentionPartial& p, const EncodedHeadBlock& head,
                                const int64_t row, const int64_t group, NextLines& ahead) {
  constexpr int64_t kTileOfDims = kTile * kBits * 2;  // All slots of sixteen dims.
  const CodedScratch& c = t.body.coded;
  const std::byte* a = head.block + head.value_codes + 2 * group * kTileOfDims;
  const bool has_second = 32 * group + 16 < t.head_dim;
  const std::byte* b = has_second ? a + kTileOfDims : a;
  TileSums<kRows> sums;
  for (int64_t j = 0; j < kBits * 2; ++j) {
    ahead.Bring();
    const std::byte* first = a + j * kTile;
    const std::byte* second = b + j * kTile;
    constexpr int kPerByte = 8 / kBits;
    AddValueTiles<kBits, 0, kRows>(c, row, first, second, kPerByte * j, sums);
    if constexpr (kBits <= 4) AddValueTiles<kBits, 1, kRows>(c, row, first, second, kPerByte * j + 1, sums);
    if constexpr (kBits == 2) {
      AddValueTiles<kBits, 2, kRows>(c, row, first, second, kPerByte * j + 2, sums);
      AddValueTiles<kBits, 3, kRows>(c, row, first, second, kPerByte * j + 3, sums);
    }
  }
  const v16 step = Set1(c.value_steps[kBits == 8 ? 0 : group]);
  sums.ForEach(row, [&](const int64_t r, const CodeSums& sum, const int64_t which) {
    if (which == 1 && !has_second) return;
    float* so_far = p.values + r * p.value_stride + 32 * group + 16 * which;
    const v16 block =
        kBits == 8 ? Mul(sum.Floats(c.weight_offsets[r]), step) : Fma(sum.Floats(0), step, Set1(c.zero_dots[r]));
    Store(so_far, Fma(block, Set1(c.takes[r]), Mul(Load(so_far), Set1(t.correction[r]))));
  });
}

template <int kBits, int kRows>
static inline void AddCodedValues(const AttentionTile& t, const AttentionPartial& p, const EncodedHeadBlock& head,
                                  const int64_t row, NextLines& ahead) {
  for (int64_t group = 0; 32 * group < t.head_dim; ++group) {
    if (kBits < 8 || group == 0) {
      for (int r = 0; r < kRows; ++r) ScaleWeights<kBits>(t, row + r, group);
    }
    AddCodedDims<kBits, kRows>(t, p, head, row, group, ahead);
  }
}

template <int kKeyBits, int kValueBits, int kRows>
static void AttendRows(const AttentionTile& t, const AttentionPartial& p, const EncodedHeadBlock& head,
                       const int64_t row, const float* log_degrees, NextLines& ahead) {
  Scores<kKeyBits, kRows>(t, head, row, ahead);
  WeighCoded<kRows>(t, p, row, log_degrees);
  AddCodedValues<kValueBits, kRows>(t, p, head, row, ahead);
}

template <int kKeyBits, int kValueBits>
static void AttendCodesOf(const AttentionTile& t, const AttentionPartial& p, const EncodedHeadBlock& head,
                          const float* log_degrees, NextLines ahead) {
  const int64_t rows = t.tokens * t.group;
  int64_t row = 0;
  for (; row + kCodeRows <= rows; row += kCodeRows) {
    AttendRows<kKeyBits, kValueBits, kCodeRows>(t, p, head, row, log_degrees, ahead);
  }
  if constexpr (kCodeRows > 3) {
    if (rows - row == 3) return AttendRows<kKeyBits, kValueBits, 3>(t, p, head, row, log_degrees, ahead);
  }
  if constexpr (kCodeRows > 2) {
    if (rows - row == 2) return AttendRows<kKeyBits, kValueBits, 2>(t, p, head, row, log_degrees, ahead);
  }
  if (row < rows) AttendRows<kKeyBits, kValueBits, 1>(t, p, head, row, log_degrees, ahead);
}

// `next`: the head block that comes after this one, with its log degrees.
static void AttendCodes(const AttentionTile& t, const AttentionPartial& p, const EncodedHeadBlock& head,
                        const float* log_degrees, const std::byte* next, const float* next_log_degrees) {
  for (int i = 0; i < 64 && next_log_degrees != nullptr; i += 16) PrefetchNear(next_log_degrees + i);
  PrepareRanges(t, head);
  const auto* begin = reinterpret_cast<const char*>(next);
  const NextLines lines{begin, begin + head.bytes};
  if (head.key_bits == 8 && head.value_bits == 8) return AttendCodesOf<8, 8>(t, p, head, log_degrees, lines);
  if (head.key_bits == 8) return AttendCodesOf<8, 4>(t, p, head, log_degrees, lines);
  if (head.key_bits == 4) return AttendCodesOf<4, 4>(t, p, head, log_degrees, lines);
  AttendCodesOf<2, 2>(t, p, head, log_degrees, lines);
}
