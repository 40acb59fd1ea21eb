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

// The nearest, on ties the even one. |x| < 2^22; what is no number gives any.
static inline Wholes Nearest(const v16& x) {
  Wholes wholes;
  for (int i = 0; i < 16; ++i) {
    wholes.lane[i] = static_cast<int32_t>(BitsOf(x.lane[i] + 12582912.0F) - BitsOf(12582912.0F));  // 1.5 * 2^23
  }
  return wholes;
}
static inline v16 FloatsOf(const Wholes& x) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(x.lane[i]);
  return r;
}

// Four neighbours, for all lanes.
struct FourBytes {
  uint8_t bytes[4];
};
static inline FourBytes LoadFourBytes(const std::byte* bytes, const int64_t group) {
  FourBytes four;
  __builtin_memcpy(&four, bytes + 4 * group, sizeof(four));
  return four;
}

// Sums of products of codes below 8 bits with numbers of a byte.
using SmallCodes = Codes;
template <int kBits, int kPart>
static inline SmallCodes LoadSmallCodes(const std::byte* tile) {
  return LoadCodes<kBits, kPart>(tile);
}
struct ByteSums {
  int32_t lanes[16] = {};

  void AddSigned(const SmallCodes& codes, const FourBytes& four) {
    for (int i = 0; i < 64; ++i) lanes[i / 4] += int32_t{codes.code[i]} * static_cast<int8_t>(four.bytes[i % 4]);
  }
  void AddUnsigned(const SmallCodes& codes, const FourBytes& four) {
    for (int i = 0; i < 64; ++i) lanes[i / 4] += int32_t{codes.code[i]} * int32_t{four.bytes[i % 4]};
  }
  v16 Floats() const {
    v16 r;
    for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(lanes[i]);
    return r;
  }
};

// The larger of `most`, which is not negative, and |x|.
static inline v16 LargerMagnitude(const v16& most, const v16& x) {
  v16 r;
  for (int i = 0; i < 16; ++i) {
    const uint32_t magnitude = BitsOf(x.lane[i]) & 0x7fffffffU;
    r.lane[i] = FloatOf(magnitude > BitsOf(most.lane[i]) ? magnitude : BitsOf(most.lane[i]));
  }
  return r;
}
