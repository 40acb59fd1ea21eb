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

// The nearest, on ties the even one.
static inline Wholes Nearest(const v16 x) {
  alignas(64) float lanes[16];
  Store(lanes, x);
  Wholes wholes;
  for (int i = 0; i < 2; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(wholes.lane + 8 * i),
                        _mm256_cvtps_epi32(_mm256_load_ps(lanes + 8 * i)));
  }
  return wholes;
}
static inline v16 FloatsOf(const Wholes& x) {
  alignas(64) float lanes[16];
  for (int i = 0; i < 2; ++i) {
    _mm256_store_ps(lanes + 8 * i,
                    _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.lane + 8 * i))));
  }
  return Load(lanes);
}

// Four neighbours, for all lanes.
using FourBytes = __m256i;
static inline FourBytes LoadFourBytes(const std::byte* bytes, const int64_t group) {
  int32_t four;
  __builtin_memcpy(&four, bytes + 4 * group, sizeof(four));
  return _mm256_set1_epi32(four);
}

// The 64 codes of a tile, below 8 bits: sixteen lanes of four.
struct SmallCodes {
  __m256i bytes[2];
};
template <int kBits, int kPart>
static inline SmallCodes LoadSmallCodes(const std::byte* tile) {
  SmallCodes codes;
  for (int i = 0; i < 2; ++i) {
    __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile + 32 * i));
    if constexpr (kPart > 0) bytes = _mm256_srli_epi16(bytes, kPart * kBits);
    codes.bytes[i] = _mm256_and_si256(bytes, _mm256_set1_epi8((1 << kBits) - 1));
  }
  return codes;
}

// Sums of products of codes below 8 bits with numbers of a byte. Two products of at most 15 x 255 fit 16 bits.
struct ByteSums {
  __m256i sums[2] = {};

  void AddSigned(const SmallCodes& codes, const FourBytes& four) {
    for (int i = 0; i < 2; ++i) AddPairs(i, _mm256_maddubs_epi16(codes.bytes[i], four));
  }
  void AddUnsigned(const SmallCodes& codes, const FourBytes& four) {
    for (int i = 0; i < 2; ++i) AddPairs(i, _mm256_maddubs_epi16(four, codes.bytes[i]));
  }
  void AddPairs(const int i, const __m256i pairs) {
    sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  v16 Floats() const {
    alignas(64) float lanes[16];
    for (int i = 0; i < 2; ++i) _mm256_store_ps(lanes + 8 * i, _mm256_cvtepi32_ps(sums[i]));
    return Load(lanes);
  }
};

// The larger of `most`, which is not negative, and |x|.
static inline v16 LargerMagnitude(const v16 most, const v16 x) {
  alignas(64) uint32_t bits[16];
  alignas(64) uint32_t others[16];
  Store(reinterpret_cast<float*>(bits), most);
  Store(reinterpret_cast<float*>(others), x);
  for (int i = 0; i < 16; ++i) {
    const uint32_t magnitude = others[i] & 0x7fffffffU;
    bits[i] = magnitude > bits[i] ? magnitude : bits[i];
  }
  return Load(reinterpret_cast<const float*>(bits));
}
