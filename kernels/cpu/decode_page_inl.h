// One KV head of an encoded page (kernels/kv_encoding.h) as the dense layout of attention_inl.h, so that attention over
// a compressed view is attention over rows. What is decoded lies in a cache when the products read it: a page comes
// from memory in its few bytes, and decoding it costs less than bringing the dense one would.
// Every operation is exact or a single rounding of the definition's, so all instruction sets give the definition's
// bits.
//   i8: scale * code is exact    u4: fma(scale, code, zero), whose product is exact    both then rounded to bf16
// Loads of 16 or 32 places may reach beyond a row of codes, never beyond the block.

static constexpr int64_t kSlots = 64;
static constexpr int64_t kNibbles = 32;  // Places of one LoadU4: of a range of values, too.

// Elements of keys or values of one KV head in the dense layout.
static inline int64_t ValueDims(const int64_t head_dim) { return RoundUp(head_dim, 16); }
static inline int64_t HeadElements(const int64_t head_dim) { return 64 * head_dim + 64 * ValueDims(head_dim); }

// As floats; up to fifteen more than asked for are written.
static inline void WidenHalves(const std::byte* from, const int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += 16) Store(to + i, LoadF16(from + 2 * i));
}

// Thirty-two codes of `kBits` (4 or 2), every other place in each vector.
template <int kBits>
static inline Pairs LoadCodes(const std::byte* from) {
  if constexpr (kBits == 4) return LoadU4(from);
  uint64_t nibbles[2];
  for (int half = 0; half < 2; ++half) {
    uint32_t codes;
    __builtin_memcpy(&codes, from + 4 * half, sizeof(codes));
    uint64_t apart = codes;  // Fields of 16, 8, 4, then 2 bits at twice their distance.
    apart = (apart | apart << 16) & 0x0000ffff0000ffffULL;
    apart = (apart | apart << 8) & 0x00ff00ff00ff00ffULL;
    apart = (apart | apart << 4) & 0x0f0f0f0f0f0f0f0fULL;
    nibbles[half] = (apart | apart << 2) & 0x3333333333333333ULL;
  }
  return LoadU4(reinterpret_cast<const std::byte*>(nibbles));
}

// `range`: zero and scale.
template <int kBits>
static inline Pairs DecodeCodes(const std::byte* from, const float* range) {
  const Pairs codes = LoadCodes<kBits>(from);
  const v16 zero = Set1(range[0]);
  const v16 scale = Set1(range[1]);
  return {Fma(scale, codes.even, zero), Fma(scale, codes.odd, zero)};
}

// What the products read: neighbours along the summed axis side by side where they are bf16.
template <bool kBf16>
struct DenseHead;

template <>
struct DenseHead<true> {
  float* keys;    // [dim / 2][64] pairs of channels
  float* values;  // [ceil(dim / 16)][32][16] pairs of slots

  DenseHead(void* dense, const int64_t dim)
      : keys(static_cast<float*>(dense)), values(static_cast<float*>(dense) + kSlots * dim / 2) {}
  // Sixteen slots of channels i and i + 1; sixteen dims of slots s and s + 1.
  void PutKeys(const int64_t i, const int64_t s, const v16& a, const v16& b) const {
    Store(keys + i / 2 * kSlots + s, PackBf16(a, b));
  }
  void PutValues(const int64_t s, const int64_t i, const v16& a, const v16& b) const {
    Store(values + (i / 16 * 32 + s / 2) * 16, PackBf16(a, b));
  }
  // Thirty-two; of values only as many groups of 16 dims as there are.
  void PutKeys(const int64_t i, const int64_t s, const Pairs& a, const Pairs& b) const {
    const Zipped both = PackBf16(a, b);
    Store(keys + i / 2 * kSlots + s, both.first);
    Store(keys + i / 2 * kSlots + s + 16, both.second);
  }
  void PutValues(const int64_t s, const int64_t i, const int64_t groups, const Pairs& a, const Pairs& b) const {
    const Zipped both = PackBf16(a, b);
    Store(values + (i / 16 * 32 + s / 2) * 16, both.first);
    if (groups > 1) Store(values + ((i / 16 + 1) * 32 + s / 2) * 16, both.second);
  }
};

template <>
struct DenseHead<false> {
  float* keys;    // [dim][64]
  float* values;  // [ceil(dim / 16)][64][16]

  DenseHead(void* dense, const int64_t dim)
      : keys(static_cast<float*>(dense)), values(static_cast<float*>(dense) + kSlots * dim) {}
  void PutKeys(const int64_t i, const int64_t s, const v16& a, const v16& b) const {
    Store(keys + i * kSlots + s, a);
    Store(keys + (i + 1) * kSlots + s, b);
  }
  void PutValues(const int64_t s, const int64_t i, const v16& a, const v16& b) const {
    Store(values + (i / 16 * kSlots + s) * 16, a);
    Store(values + (i / 16 * kSlots + s + 1) * 16, b);
  }
  void PutKeys(const int64_t i, const int64_t s, const Pairs& a, const Pairs& b) const {
    const Zipped first = Zip(a.even, a.odd);
    const Zipped second = Zip(b.even, b.odd);
    PutKeys(i, s, first.first, second.first);
    PutKeys(i, s + 16, first.second, second.second);
  }
  void PutValues(const int64_t s, const int64_t i, const int64_t groups, const Pairs& a, const Pairs& b) const {
    const Zipped first = Zip(a.even, a.odd);
    const Zipped second = Zip(b.even, b.odd);
    PutValues(s, i, first.first, second.first);
    if (groups > 1) PutValues(s, i + 16, first.second, second.second);
  }
};

template <bool kBf16>
static inline void DecodeSignedKeys(const EncodedHeadBlock& e, const int64_t dim, const DenseHead<kBf16>& out) {
  alignas(64) float scales[kSlots];
  WidenHalves(e.block + e.key_ranges, kSlots, scales);
  for (int64_t i = 0; i < dim; i += 2) {
    const std::byte* codes = e.block + i * kSlots;
    for (int64_t s = 0; s < kSlots; s += 16) {
      const v16 scale = Load(scales + s);
      out.PutKeys(i, s, Mul(scale, LoadI8(codes + s)), Mul(scale, LoadI8(codes + kSlots + s)));
    }
  }
}

template <int kBits, bool kBf16>
static inline void DecodeRangedKeys(const EncodedHeadBlock& e, const int64_t dim, const DenseHead<kBf16>& out) {
  constexpr int64_t kRowBytes = kSlots * kBits / 8;
  constexpr int64_t kHalfBytes = kRowBytes / 2;
  alignas(64) float ranges[kMaxHeadDim * 4 + 16];
  const int64_t floats = 2 * (kSlots / e.key_group);  // Of a channel.
  WidenHalves(e.block + e.key_ranges, dim * floats, ranges);
  for (int64_t i = 0; i < dim; i += 2) {
    const std::byte* codes = e.block + i * kRowBytes;
    for (int64_t half = 0; half < 2; ++half) {
      const float* range = ranges + i * floats + half * kNibbles / e.key_group * 2;
      out.PutKeys(i, half * kNibbles, DecodeCodes<kBits>(codes + half * kHalfBytes, range),
                  DecodeCodes<kBits>(codes + kRowBytes + half * kHalfBytes, range + floats));
    }
  }
}

// The first n places, and zeros.
static inline v16 FirstLanes(const v16& a, const int64_t n) {
  return n >= 16 ? a : KeepLanes(a, 0, static_cast<int>(n), 0.0F);
}

template <bool kBf16>
static inline void DecodeSignedValues(const EncodedHeadBlock& e, const int64_t dim, const DenseHead<kBf16>& out) {
  alignas(64) float scales[kSlots];
  WidenHalves(e.block + e.value_ranges, kSlots, scales);
  for (int64_t s = 0; s < kSlots; s += 2) {
    const std::byte* codes = e.block + e.value_codes + s * dim;
    for (int64_t i = 0; i < dim; i += 16) {
      out.PutValues(s, i, FirstLanes(Mul(Set1(scales[s]), LoadI8(codes + i)), dim - i),
                    FirstLanes(Mul(Set1(scales[s + 1]), LoadI8(codes + dim + i)), dim - i));
    }
  }
}

template <int kBits, bool kBf16>
static inline void DecodeRangedValues(const EncodedHeadBlock& e, const int64_t dim, const DenseHead<kBf16>& out) {
  alignas(64) float ranges[kSlots * 2 * kMaxHeadDim / kNibbles];
  const int64_t row_bytes = (dim * kBits + 7) / 8;
  const int64_t groups = (dim + kNibbles - 1) / kNibbles;
  WidenHalves(e.block + e.value_ranges, kSlots * groups * 2, ranges);
  const int64_t whole = dim / kNibbles * kNibbles;
  for (int64_t s = 0; s < kSlots; s += 2) {
    const std::byte* codes = e.block + e.value_codes + s * row_bytes;
    const float* range = ranges + s * groups * 2;
    const auto of_slot = [&](const int64_t slot, const int64_t i) {
      return DecodeCodes<kBits>(codes + slot * row_bytes + i * kBits / 8, range + 2 * (slot * groups + i / kNibbles));
    };
    for (int64_t i = 0; i < whole; i += kNibbles) out.PutValues(s, i, 2, of_slot(0, i), of_slot(1, i));
    if (whole < dim) {
      const int64_t n = dim - whole;
      const auto first = [n](const Pairs& a) {
        return Pairs{FirstLanes(a.even, (n + 1) / 2), FirstLanes(a.odd, n / 2)};
      };
      out.PutValues(s, whole, n > 16 ? 2 : 1, first(of_slot(0, whole)), first(of_slot(1, whole)));
    }
  }
}

template <bool kBf16>
static inline void DecodeHeadAs(const EncodedHeadBlock& e, const int64_t dim, void* dense) {
  const DenseHead<kBf16> out(dense, dim);
  if (e.key_bits == 8) {
    DecodeSignedKeys(e, dim, out);
  } else if (e.key_bits == 4) {
    DecodeRangedKeys<4>(e, dim, out);
  } else {
    DecodeRangedKeys<2>(e, dim, out);
  }
  if (e.value_bits == 8) {
    DecodeSignedValues(e, dim, out);
  } else if (e.value_bits == 4) {
    DecodeRangedValues<4>(e, dim, out);
  } else {
    DecodeRangedValues<2>(e, dim, out);
  }
}

// Fills HeadElements(dim) elements of `dense`: bf16 pairs or f32. Requires: an even `dim`.
static void DecodeHead(const EncodedHeadBlock& e, const int64_t dim, const bool bf16, void* dense) {
  if (bf16) {
    DecodeHeadAs<true>(e, dim, dense);
  } else {
    DecodeHeadAs<false>(e, dim, dense);
  }
}
