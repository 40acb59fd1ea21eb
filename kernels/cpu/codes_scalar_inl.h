// Products of codes with whole numbers of 16 bits, one by one. Sums are exact, so every instruction set comes to the
// same; they may wrap on the way, as the offset brings them back.

static constexpr int kCodeRows = 1;

// The 64 codes of a tile: sixteen lanes of four.
struct Codes {
  uint8_t code[64];
};
template <int kBits, int kPart>
static inline Codes LoadCodes(const std::byte* tile) {
  Codes codes;
  for (int i = 0; i < 64; ++i) {
    codes.code[i] = static_cast<uint8_t>((static_cast<unsigned>(tile[i]) >> (kPart * kBits)) & ((1U << kBits) - 1));
  }
  return codes;
}

// `numbers`: of one row, [room] words. x + 1.5 * 2^23 of sixteen whole x, |x| <= 32639.
static inline void PutNumbers(std::byte* numbers, const int64_t /*room*/, const int64_t i, const v16& biased) {
  uint16_t words[16];
  for (int j = 0; j < 16; ++j) words[j] = static_cast<uint16_t>(BitsOf(biased.lane[j]));  // The low half is x.
  __builtin_memcpy(numbers + 2 * i, words, sizeof(words));
}

// Four neighbours, for all lanes.
struct Numbers {
  int16_t words[4];
};
static inline Numbers LoadNumbers(const std::byte* numbers, const int64_t /*room*/, const int64_t group) {
  Numbers four;
  __builtin_memcpy(&four, numbers + 8 * group, sizeof(four));
  return four;
}

struct CodeSums {
  uint32_t lanes[16] = {};

  void Add(const Codes& codes, const Numbers& numbers) {
    for (int i = 0; i < 64; ++i) {
      lanes[i / 4] += static_cast<uint32_t>(int32_t{codes.code[i]} * int32_t{numbers.words[i % 4]});
    }
  }
  // Less `offset`, as floats: one rounding.
  v16 Floats(const int32_t offset) const {
    v16 r;
    for (int i = 0; i < 16; ++i) {
      r.lane[i] = static_cast<float>(static_cast<int32_t>(lanes[i] - static_cast<uint32_t>(offset)));
    }
    return r;
  }
};
