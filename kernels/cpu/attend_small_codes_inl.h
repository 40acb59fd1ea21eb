// The two products of attention over codes of fewer than 8 bits (attend_codes_inl.h has what is around them), with
// queries and weights in whole numbers of a byte: what that rounds is a fraction of what the codes round by themselves.
// M = (2^bits - 1) / 2, the middle of the codes: numbers are multiplied with how far a code lies from it, so that what
// all slots, or all dims, have in common is not rounded.
//   keys    p_i = q_i scale_i, unit = largest |p_i| / 127, Q_i = nearest(p_i / unit)
//           q.k[s] = unit sum_i Q_i code + sum_i (q_i (zero_i + M scale_i) - unit M Q_i)
//   values  p_s = w_s scale_s, step = largest p_s / 255, W_s = nearest(p_s / step), for each 32 dims
//           out[d] = step sum_s W_s code + sum_s (w_s (zero_s + M scale_s) - step M W_s)
// Sums of whole numbers are exact; the others in sixteen lanes, first all x middles ascending, then all numbers, then
// by halves.

template <int kBits>
static constexpr float kMiddle = ((1 << kBits) - 1) * 0.5F;

// Ranges of a channel of keys, each with numbers of its own.
template <int kBits>
static constexpr int kKeyRanges = kBits == 2 ? 2 : 1;

// What the numbers of some rows stand for, and what is added to their sums. Of row r at [4 r].
template <int kBits, bool kSigned>
struct ByteUnits {
  alignas(64) float shares[16];
  alignas(64) float middles[16];

  // Leaves units at `units`, from the largest |p| there.
  void Put(float* units) {
    constexpr float kLevels = kSigned ? 127.0F : 255.0F;
    const v16 largest = Load(units);
    const v16 unit = Mul(largest, Set1(1.0F / kLevels));
    Store(units, unit);
    Store(shares, SelectLess(largest, Set1(1e-30F), Zero(), Div(Set1(kLevels), largest)));
    Store(middles, Mul(unit, Set1(-kMiddle<kBits>)));
  }
};

// 64 numbers of p of one row, and what they add to its sum.
template <bool kSigned>
static inline v16 PutBytesOfRow(const v16 p0, const v16 p1, const v16 p2, const v16 p3, const v16 share,
                                const v16 middle, v16 dot, std::byte* to) {
  const Wholes n0 = Nearest(Mul(p0, share));
  const Wholes n1 = Nearest(Mul(p1, share));
  const Wholes n2 = Nearest(Mul(p2, share));
  const Wholes n3 = Nearest(Mul(p3, share));
  dot = Fma(FloatsOf(n0), middle, dot);
  dot = Fma(FloatsOf(n1), middle, dot);
  dot = Fma(FloatsOf(n2), middle, dot);
  dot = Fma(FloatsOf(n3), middle, dot);
  if constexpr (kSigned) {
    PutSignedBytes(to, n0, n1, n2, n3);
  } else {
    PutUnsignedBytes(to, n0, n1, n2, n3);
  }
  return dot;
}

// Numbers for kRows rows of p = x scale, of `count` ranges and zeros behind them up to whole 64: to bytes + r * room.
template <int kBits, int kRows, bool kSigned>
static inline void PutBytesOf(const float* x, const int64_t x_stride, const int64_t count, const std::byte* zeros,
                              const std::byte* scales, std::byte* bytes, const int64_t room, NextLines& ahead,
                              float* units, float* dots) {
  ByteUnits<kBits, kSigned> of;
  const v16 middle = Set1(kMiddle<kBits>);
  v16 most[kRows];
  v16 dot[kRows];
  for (int r = 0; r < kRows; ++r) most[r] = dot[r] = Zero();
  const auto begin_row = [&](const int r, const v16 value, const v16 scale, const v16 mid) {
    const v16 p = Mul(value, scale);
    most[r] = LargerMagnitude(most[r], p);
    dot[r] = Fma(value, mid, dot[r]);
    return p;
  };
  if (count > 48 && count <= 64) {  // Products stay in registers.
    v16 p[kRows][4];
    for (int i = 0; i < 4; ++i) {
      const v16 scale = RangesAt(scales, 16 * i, count);
      const v16 mid = Fma(scale, middle, RangesAt(zeros, 16 * i, count));
      for (int r = 0; r < kRows; ++r) p[r][i] = begin_row(r, Load(x + r * x_stride + 16 * i), scale, mid);
    }
    ahead.Bring(kRows);
    MaxLanesOf<kRows>(most, units);
    of.Put(units);
    for (int r = 0; r < kRows; ++r) {
      dot[r] = PutBytesOfRow<kSigned>(p[r][0], p[r][1], p[r][2], p[r][3], Set1(of.shares[4 * r]),
                                      Set1(of.middles[4 * r]), dot[r], bytes + r * room);
    }
    SumLanesOf<kRows>(dot, dots);
    return;
  }
  for (int64_t i = 0; i < count; i += 16) {
    const v16 scale = RangesAt(scales, i, count);
    const v16 mid = Fma(scale, middle, RangesAt(zeros, i, count));
    for (int r = 0; r < kRows; ++r) begin_row(r, Load(x + r * x_stride + i), scale, mid);
  }
  ahead.Bring(kRows);
  MaxLanesOf<kRows>(most, units);
  of.Put(units);
  const auto scale_at = [&](const int64_t i) { return i < count ? RangesAt(scales, i, count) : Zero(); };
  for (int64_t i = 0; i < count; i += 64) {
    const v16 s0 = scale_at(i);
    const v16 s1 = scale_at(i + 16);
    const v16 s2 = scale_at(i + 32);
    const v16 s3 = scale_at(i + 48);
    for (int r = 0; r < kRows; ++r) {
      const float* row = x + r * x_stride + i;
      dot[r] = PutBytesOfRow<kSigned>(Mul(Load(row), s0), Mul(Load(row + 16), s1), Mul(Load(row + 32), s2),
                                      Mul(Load(row + 48), s3), Set1(of.shares[4 * r]), Set1(of.middles[4 * r]), dot[r],
                                      bytes + r * room + i);
    }
  }
  SumLanesOf<kRows>(dot, dots);
}

template <int kBits, int kRows>
static inline void PutQueryBytes(const AttentionTile& t, CodedBlock& b, const int64_t row) {
  const CodedScratch& c = t.body.coded;
  const int64_t dims = RoundUp(t.head_dim, 4);
  for (int g = 0; g < kKeyRanges<kBits>; ++g) {
    const std::byte* zeros = b.bytes + t.body.head.key_ranges + g * 4 * dims;
    PutBytesOf<kBits, kRows, true>(c.queries + row * c.dims, c.dims, t.head_dim, zeros, zeros + 2 * dims,
                                   b.scratch->query_numbers + g * kRows * c.dims, c.dims, b.ahead, b.query_units[g],
                                   b.query_dots[g]);
  }
}

// The four tiles of key codes of four dims, all 64 slots.
struct KeyTiles {
  SmallCodes a;
  SmallCodes b;
  SmallCodes c;
  SmallCodes d;
};
template <int kBits>
static inline KeyTiles LoadKeyTiles(const std::byte* tile) {
  if constexpr (kBits == 4) {
    return {LoadSmallCodes<4, 0>(tile), LoadSmallCodes<4, 1>(tile), LoadSmallCodes<4, 0>(tile + kTile),
            LoadSmallCodes<4, 1>(tile + kTile)};
  } else {
    return {LoadSmallCodes<2, 0>(tile), LoadSmallCodes<2, 1>(tile), LoadSmallCodes<2, 2>(tile),
            LoadSmallCodes<2, 3>(tile)};
  }
}

// Sums of those for some rows. Not an array, so that they are registers.
template <int kRows>
struct SlotSums {
  ByteSums a;
  ByteSums b;
  ByteSums c;
  ByteSums d;
  SlotSums<kRows - 1> others;

  // `numbers`: of the first row, the next one's `room` bytes further; of c and d `apart` bytes further.
  void Add(const KeyTiles& codes, const std::byte* numbers, const int64_t room, const int64_t apart,
           const int64_t group) {
    const FourBytes first = LoadFourBytes(numbers, group);
    a.AddSigned(codes.a, first);
    b.AddSigned(codes.b, first);
    const FourBytes second = apart == 0 ? first : LoadFourBytes(numbers + apart, group);
    c.AddSigned(codes.c, second);
    d.AddSigned(codes.d, second);
    others.Add(codes, numbers + room, room, apart, group);
  }
  // visit(row, sums of a tile, which of the four)
  template <typename Visit>
  void ForEach(const int64_t row, const Visit& visit) const {
    visit(row, a, 0);
    visit(row, b, 1);
    visit(row, c, 2);
    visit(row, d, 3);
    others.ForEach(row + 1, visit);
  }
};
template <>
struct SlotSums<0> {
  void Add(const KeyTiles&, const std::byte*, int64_t, int64_t, int64_t) {}
  template <typename Visit>
  void ForEach(int64_t, const Visit&) const {}
};

// Scores of all slots of kRows rows.
template <int kBits, int kRows>
static inline void SmallScores(const AttentionTile& t, CodedBlock& b) {
  const int64_t room = t.body.coded.dims;
  const int64_t apart = (kKeyRanges<kBits> - 1) * kRows * room;
  const std::byte* numbers = b.scratch->query_numbers;
  const std::byte* tile = b.bytes;
  NextLines ahead = b.ahead;
  SlotSums<kRows> sums;
  const int64_t groups = (t.head_dim + 3) / 4;
  for (int64_t g = 0; g < groups; ++g, tile += kTile * kBits / 2) {
    ahead.Bring();
    sums.Add(LoadKeyTiles<kBits>(tile), numbers, room, apart, g);
  }
  b.ahead = ahead;
  sums.ForEach(0, [&](const int64_t r, const ByteSums& sum, const int64_t which) {
    const int64_t g = kKeyRanges<kBits> == 1 ? 0 : which / 2;
    Store(b.scratch->scores + r * 64 + 16 * which,
          Fma(sum.Floats(), Set1(b.query_units[g][4 * r]), Set1(b.query_dots[g][4 * r])));
  });
}

template <int kBits, int kRows>
static inline void PutWeightBytes(const AttentionTile& t, CodedBlock& b) {
  for (int64_t g = 0; kRangeDims * g < t.head_dim; ++g) {
    const std::byte* zeros = b.bytes + t.body.head.value_ranges + g * 4 * 64;
    PutBytesOf<kBits, kRows, false>(b.scratch->weights, 64, 64, zeros, zeros + 2 * 64,
                                    b.scratch->weight_numbers + g * kRows * 64, 64, b.ahead,
                                    b.scratch->value_units + g * 16, b.scratch->value_dots + g * 16);
  }
}

// Sums of two tiles of value codes for some rows.
template <int kRows>
struct DimSums {
  ByteSums a;
  ByteSums b;
  DimSums<kRows - 1> others;

  void Add(const SmallCodes& first, const SmallCodes& second, const std::byte* numbers, const int64_t group) {
    const FourBytes four = LoadFourBytes(numbers, group);
    a.AddUnsigned(first, four);
    b.AddUnsigned(second, four);
    others.Add(first, second, numbers + 64, group);
  }
  template <typename Visit>
  void ForEach(const int64_t row, const Visit& visit) const {
    visit(row, a, 0);
    visit(row, b, 1);
    others.ForEach(row + 1, visit);
  }
};
template <>
struct DimSums<0> {
  void Add(const SmallCodes&, const SmallCodes&, const std::byte*, int64_t) {}
  template <typename Visit>
  void ForEach(int64_t, const Visit&) const {}
};

// Values of all dims of kRows rows.
template <int kBits, int kRows>
static inline void AddSmallValues(const AttentionTile& t, const AttentionPartial& p, CodedBlock& b, const int64_t row) {
  constexpr int64_t kTileOfDims = kTile * kBits * 2;  // All slots of sixteen dims.
  constexpr int kPerByte = 8 / kBits;
  NextLines ahead = b.ahead;
  for (int64_t group = 0; kRangeDims * group < t.head_dim; ++group) {
    const std::byte* numbers = b.scratch->weight_numbers + group * kRows * 64;
    const std::byte* first = b.bytes + t.body.head.value_codes + 2 * group * kTileOfDims;
    const bool has_second = kRangeDims * group + 16 < t.head_dim;
    const std::byte* second = has_second ? first + kTileOfDims : first;
    DimSums<kRows> sums;
    for (int64_t j = 0; j < kBits * 2; ++j, first += kTile, second += kTile) {
      ahead.Bring();
      sums.Add(LoadSmallCodes<kBits, 0>(first), LoadSmallCodes<kBits, 0>(second), numbers, kPerByte * j);
      sums.Add(LoadSmallCodes<kBits, 1>(first), LoadSmallCodes<kBits, 1>(second), numbers, kPerByte * j + 1);
      if constexpr (kBits == 2) {
        sums.Add(LoadSmallCodes<kBits, 2>(first), LoadSmallCodes<kBits, 2>(second), numbers, kPerByte * j + 2);
        sums.Add(LoadSmallCodes<kBits, 3>(first), LoadSmallCodes<kBits, 3>(second), numbers, kPerByte * j + 3);
      }
    }
    const float* units = b.scratch->value_units + group * 16;
    const float* dots = b.scratch->value_dots + group * 16;
    sums.ForEach(0, [&](const int64_t r, const ByteSums& sum, const int64_t which) {
      if (which == 1 && !has_second) return;
      float* so_far = p.values + (row + r) * p.value_stride + kRangeDims * group + 16 * which;
      const v16 block = Fma(sum.Floats(), Set1(units[4 * r]), Set1(dots[4 * r]));
      Store(so_far, Fma(block, Set1(b.takes[4 * r]), Mul(Load(so_far), Set1(b.corrections[4 * r]))));
    });
  }
  b.ahead = ahead;
}
