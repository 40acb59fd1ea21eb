// Products of codes with whole numbers of 16 bits, by the word product of AVX2: also what the set of AVX-512 without a
// byte product runs. Sums are exact, so every instruction set comes to the same.

static constexpr int kCodeRows = 1;  // Eight sums, of two tiles, are half of the registers.

// The 64 codes of a tile: sixteen lanes of four, as words.
struct Codes {
  __m256i words[4];
};
template <int kBits, int kPart>
static inline Codes LoadCodes(const std::byte* tile) {
  Codes codes;
  for (int i = 0; i < 2; ++i) {
    __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile + 32 * i));
    if constexpr (kPart > 0) bytes = _mm256_srli_epi16(bytes, kPart * kBits);
    if constexpr (kBits < 8) bytes = _mm256_and_si256(bytes, _mm256_set1_epi8((1 << kBits) - 1));
    codes.words[2 * i] = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes));
    codes.words[2 * i + 1] = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes, 1));
  }
  return codes;
}

// `numbers`: of one row, [room] words. x + 1.5 * 2^23 of sixteen whole x, |x| <= 32639.
static inline void PutNumbers(std::byte* numbers, const int64_t /*room*/, const int64_t i, const v16 biased) {
  alignas(64) uint32_t bits[16];
  Store(reinterpret_cast<float*>(bits), biased);  // The low half of each is x.
  uint16_t words[16];
  for (int j = 0; j < 16; ++j) words[j] = static_cast<uint16_t>(bits[j]);
  __builtin_memcpy(numbers + 2 * i, words, sizeof(words));
}

// Four neighbours, for all lanes.
struct Numbers {
  __m256i words;
};
static inline Numbers LoadNumbers(const std::byte* numbers, const int64_t /*room*/, const int64_t group) {
  long long four;
  __builtin_memcpy(&four, numbers + 8 * group, sizeof(four));
  return {_mm256_set1_epi64x(four)};
}

struct CodeSums {
  __m256i pairs[4] = {};  // Two of a lane.

  void Add(const Codes& codes, const Numbers& numbers) {
    for (int i = 0; i < 4; ++i) {
      pairs[i] = _mm256_add_epi32(pairs[i], _mm256_madd_epi16(codes.words[i], numbers.words));
    }
  }
  // Less `offset`, as floats: one rounding.
  v16 Floats(const int32_t offset) const {
    alignas(64) float lanes[16];
    for (int i = 0; i < 2; ++i) {
      const __m256i mixed = _mm256_hadd_epi32(pairs[2 * i], pairs[2 * i + 1]);
      const __m256i sums = _mm256_sub_epi32(_mm256_permute4x64_epi64(mixed, 0xd8), _mm256_set1_epi32(offset));
      _mm256_store_ps(lanes + 8 * i, _mm256_cvtepi32_ps(sums));
    }
    return Load(lanes);
  }
};
