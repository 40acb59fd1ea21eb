// The two products of attention over codes of 8 bits (attend_codes_inl.h has what is around them), with queries and
// weights in whole numbers of 16 bits:
//   keys    unit = largest |q| / levels, Q = nearest(q / unit), once a row
//           q.k[s] = unit (scale[s] sum_i Q_i (code - 128))
//   values  step = largest scale / levels, W = nearest(w_s scale[s] / step)
//           out[d] = step sum_s W_s (code - 128)
// Numbers err by 2^-16 of the largest query and weight: less than bf16 rounds either by.

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

// Scores of the 32 slots of two tiles of kRows rows.
template <int kRows, int kPair>
static inline void PairScores(const AttentionTile& t, CodedBlock& b, const int64_t row) {
  const CodedScratch& c = t.body.coded;
  const std::byte* numbers = c.query_numbers + row * 2 * c.dims;
  TileSums<kRows> sums;
  const int64_t groups = (t.head_dim + 3) / 4;
  for (int64_t g = 0; g < groups; ++g) {
    b.ahead.Bring();
    const std::byte* tile = b.bytes + (4 * g + 2 * kPair) * kTile;
    sums.Add(LoadCodes<8, 0>(tile), LoadCodes<8, 0>(tile + kTile), numbers, c.dims, g);
  }
  sums.ForEach(0, [&](const int64_t r, const CodeSums& sum, const int64_t which) {
    const int64_t s = 32 * kPair + 16 * which;
    Store(b.scratch->scores + r * 64 + s,
          Mul(Mul(sum.Floats(c.offsets[row + r]), Load(b.scratch->key_scales + s)), Set1(c.units[row + r])));
  });
}

template <int kRows>
static inline void WideScores(const AttentionTile& t, CodedBlock& b, const int64_t row) {
  PairScores<kRows, 0>(t, b, row);
  PairScores<kRows, 1>(t, b, row);
}

static inline void PrepareWideKeys(const AttentionTile& t, const CodedBlock& b) {
  const std::byte* scales = b.bytes + t.body.head.key_ranges;
  for (int64_t s = 0; s < 64; s += 16) Store(b.scratch->key_scales + s, LoadF16(scales + 2 * s));
}
static inline void PrepareWideValues(const AttentionTile& t, const CodedBlock& b) {
  const std::byte* scales = b.bytes + t.body.head.value_ranges;
  v16 most = Zero();
  for (int64_t s = 0; s < 64; s += 16) most = Max(most, LoadF16(scales + 2 * s));
  const float largest = MaxLanes(most);
  *b.scratch->value_units = largest / kWeightLevels;
  const v16 share = Set1(largest > 0.0F ? kWeightLevels / largest : 0.0F);
  for (int64_t s = 0; s < 64; s += 16) Store(b.scratch->value_scales + s, Mul(LoadF16(scales + 2 * s), share));
}

// Numbers of weights; their offsets at value_dots.
template <int kRows>
static inline void PutWideWeights(const CodedBlock& b) {
  for (int r = 0; r < kRows; ++r) {
    v16 sum = Zero();
    for (int64_t s = 0; s < 64; s += 16) {
      const v16 biased = Fma(Load(b.scratch->weights + r * 64 + s), Load(b.scratch->value_scales + s), Set1(kBias));
      PutNumbers(b.scratch->weight_numbers + r * 2 * 64, 64, s, biased);
      sum = Add(sum, Sub(biased, Set1(kBias)));
    }
    const float total = SumLanes(sum);
    b.scratch->value_dots[r] = 128.0F * (total == total ? total : 0.0F);
  }
}

// Values of all dims of kRows rows.
template <int kRows>
static inline void AddWideValues(const AttentionTile& t, const AttentionPartial& p, CodedBlock& b, const int64_t row) {
  constexpr int64_t kTileOfDims = kTile * 16;  // All slots of sixteen dims.
  const v16 step = Set1(*b.scratch->value_units);
  for (int64_t group = 0; kRangeDims * group < t.head_dim; ++group) {
    const std::byte* first = b.bytes + t.body.head.value_codes + 2 * group * kTileOfDims;
    const bool has_second = kRangeDims * group + 16 < t.head_dim;
    const std::byte* second = has_second ? first + kTileOfDims : first;
    TileSums<kRows> sums;
    for (int64_t j = 0; j < 16; ++j) {
      b.ahead.Bring();
      sums.Add(LoadCodes<8, 0>(first + j * kTile), LoadCodes<8, 0>(second + j * kTile), b.scratch->weight_numbers, 64,
               j);
    }
    sums.ForEach(0, [&](const int64_t r, const CodeSums& sum, const int64_t which) {
      if (which == 1 && !has_second) return;
      float* so_far = p.values + (row + r) * p.value_stride + kRangeDims * group + 16 * which;
      const v16 block = Mul(sum.Floats(static_cast<int32_t>(b.scratch->value_dots[r])), step);
      Store(so_far, Fma(block, Set1(b.takes[4 * r]), Mul(Load(so_far), Set1(b.corrections[4 * r]))));
    });
  }
}
