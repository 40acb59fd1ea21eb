// Products of codes with whole numbers of 16 bits, by the byte product of AVX-512: a number is 256 high + low, both
// signed bytes, and each half has a sum of its own. Sums are exact, so every instruction set comes to the same.

// sum + products of four unsigned bytes of a with four signed ones of b, lane by lane.
static inline void AddProducts(__m512i& sum, const __m512i a, const __m512i b) {
#if defined(__AVX512VNNI__)
  __m512i more = sum;
  __asm__("vpdpbusd %2, %1, %0" : "+v"(more) : "v"(a), "v"(b));  // GCC 12 copies sums in and out of the intrinsic's.
  sum = more;
#else
  sum = _mm512_dpbusd_epi32(sum, a, b);
#endif
}

static constexpr int kCodeRows = 4;  // Rows whose sums stay in registers: four each for two tiles.

// The 64 codes of a tile: sixteen lanes of four.
struct Codes {
  __m512i bytes;
};
template <int kBits, int kPart>
static inline Codes LoadCodes(const std::byte* tile) {
  __m512i bytes = _mm512_loadu_si512(tile);
  if constexpr (kPart > 0) bytes = _mm512_srli_epi16(bytes, kPart * kBits);
  if constexpr (kBits < 8) bytes = _mm512_and_si512(bytes, _mm512_set1_epi8((1 << kBits) - 1));
  return {bytes};
}

// `numbers`: of one row, [room] high bytes, then [room] low ones. x + 1.5 * 2^23 of sixteen whole x, |x| <= 32639.
static inline void PutNumbers(std::byte* numbers, const int64_t room, const int64_t i, const v16 biased) {
  const __m512i bits = _mm512_castps_si512(biased);  // The low half is x.
  const __m512i high = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(128)), 8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(numbers + i), _mm512_cvtepi32_epi8(high));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(numbers + room + i), _mm512_cvtepi32_epi8(bits));
}

// Four neighbours, for all lanes.
struct Numbers {
  __m512i high;
  __m512i low;
};
static inline Numbers LoadNumbers(const std::byte* numbers, const int64_t room, const int64_t group) {
  int32_t high;
  int32_t low;
  __builtin_memcpy(&high, numbers + 4 * group, sizeof(high));
  __builtin_memcpy(&low, numbers + room + 4 * group, sizeof(low));
  return {_mm512_set1_epi32(high), _mm512_set1_epi32(low)};
}

struct CodeSums {
  __m512i high = _mm512_setzero_si512();
  __m512i low = _mm512_setzero_si512();

  void Add(const Codes& codes, const Numbers& numbers) {
    AddProducts(high, codes.bytes, numbers.high);
    AddProducts(low, codes.bytes, numbers.low);
  }
  // Less `offset`, as floats: one rounding.
  v16 Floats(const int32_t offset) const {
    const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, _mm512_set1_epi32(offset)));
  }
};

// Sixteen whole numbers.
using Wholes = __m512i;
// The nearest, on ties the even one.
static inline Wholes Nearest(const v16 x) { return _mm512_cvtps_epi32(x); }
static inline v16 FloatsOf(const Wholes x) { return _mm512_cvtepi32_ps(x); }

// 64 numbers of a byte each, signed or not, of four v16. Packing leaves four neighbours side by side and the fours in
// an order of its own: number 4 (4 j + k) at place 4 (4 k + j).
static inline void PutSignedBytes(std::byte* to, const Wholes& a, const Wholes& b, const Wholes& c, const Wholes& d) {
  _mm512_storeu_si512(to, _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)));
}
static inline void PutUnsignedBytes(std::byte* to, const Wholes& a, const Wholes& b, const Wholes& c, const Wholes& d) {
  _mm512_storeu_si512(to, _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)));
}

// Four neighbours, for all lanes.
using FourBytes = __m512i;
static inline FourBytes LoadFourBytes(const std::byte* bytes, const int64_t group) {
  int32_t four;
  __builtin_memcpy(&four, bytes + 4 * (group / 16 * 16 + group % 4 * 4 + group / 4 % 4), sizeof(four));
  return _mm512_set1_epi32(four);
}

// Sums of products of codes below 8 bits with numbers of a byte.
using SmallCodes = Codes;
template <int kBits, int kPart>
static inline SmallCodes LoadSmallCodes(const std::byte* tile) {
  return LoadCodes<kBits, kPart>(tile);
}
struct ByteSums {
  __m512i sum = _mm512_setzero_si512();

  void AddSigned(const SmallCodes& codes, const FourBytes& four) { AddProducts(sum, codes.bytes, four); }
  void AddUnsigned(const SmallCodes& codes, const FourBytes& four) { AddProducts(sum, four, codes.bytes); }
  v16 Floats() const { return _mm512_cvtepi32_ps(sum); }
};

// SumLanes and MaxLanes of up to four, at out[4 r].
static inline v16 LowHalves(const v16 a, const v16 b) { return _mm512_shuffle_f32x4(a, b, 0x44); }
static inline v16 HighHalves(const v16 a, const v16 b) { return _mm512_shuffle_f32x4(a, b, 0xee); }
template <int kCount, typename Join>
static inline void JoinLanes(const v16* x, float* out, const Join& join) {
  static_assert(kCount <= 4);
  const v16 ab = join(LowHalves(x[0], x[kCount > 1 ? 1 : 0]), HighHalves(x[0], x[kCount > 1 ? 1 : 0]));
  v16 cd = ab;
  if constexpr (kCount > 2) {
    cd = join(LowHalves(x[2], x[kCount > 3 ? 3 : 2]), HighHalves(x[2], x[kCount > 3 ? 3 : 2]));
  }
  const v16 four = join(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  const v16 two = join(four, _mm512_permute_ps(four, 0x4e));
  Store(out, join(two, _mm512_permute_ps(two, 0xb1)));
}
template <int kCount>
static inline void SumLanesOf(const v16* x, float* out) {
  JoinLanes<kCount>(x, out, [](const v16 a, const v16 b) { return Add(a, b); });
}
template <int kCount>
static inline void MaxLanesOf(const v16* x, float* out) {
  JoinLanes<kCount>(x, out, [](const v16 a, const v16 b) { return Max(a, b); });
}

// The larger of `most`, which is not negative, and |x|.
static inline v16 LargerMagnitude(const v16 most, const v16 x) {
  const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(most), magnitude));
}
