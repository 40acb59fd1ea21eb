// Products of codes with whole numbers of 16 bits, by the byte product of AVX-512: a number is 256 high + low, both
// signed bytes, and each half has a sum of its own. Sums are exact, so every instruction set comes to the same.

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
    high = _mm512_dpbusd_epi32(high, codes.bytes, numbers.high);
    low = _mm512_dpbusd_epi32(low, codes.bytes, numbers.low);
  }
  // Less `offset`, as floats: one rounding.
  v16 Floats(const int32_t offset) const {
    const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, _mm512_set1_epi32(offset)));
  }
};
