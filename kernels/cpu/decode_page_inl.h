// One KV head of an encoded page (kernels/kv_encoding.h) as the dense layout of attention_inl.h, so that attention over
// a compressed view is attention over rows. Plain loops that the compiler turns into vectors; every operation is exact
// or a single rounding of the definition's, so all instruction sets give the definition's bits.

static constexpr int64_t kSlots = 64;

// Elements of keys or values of one KV head in the dense layout.
static inline int64_t ValueDims(const int64_t head_dim) { return RoundUp(head_dim, 16); }
static inline int64_t HeadElements(const int64_t head_dim) { return 64 * head_dim + 64 * ValueDims(head_dim); }

static inline float WidenF16(const uint16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000U) << 16;
  const uint32_t exponent = x & 0x7c00U;
  const uint32_t rest = static_cast<uint32_t>(x & 0x7fffU) << 13;
  const float small = static_cast<float>(static_cast<int32_t>(x & 0x3ffU)) * 0x1p-24F;
  const uint32_t bits = exponent == 0         ? __builtin_bit_cast(uint32_t, small)
                        : exponent == 0x7c00U ? rest + (224U << 23)
                                              : rest + (112U << 23);
  return __builtin_bit_cast(float, bits | sign);
}

static inline uint16_t F16At(const std::byte* at) {
  uint16_t x;
  __builtin_memcpy(&x, at, 2);
  return x;
}

// Sixty-four codes of `bits` each, the first in the lowest bits of its byte.
static inline void UnpackCodes(const std::byte* from, const int bits, const int64_t n, float* to) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(from);
  if (bits == 8) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(static_cast<int8_t>(bytes[i]));
  } else if (bits == 4) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>((bytes[i / 2] >> (i % 2 * 4)) & 15);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>((bytes[i / 4] >> (i % 4 * 2)) & 3);
  }
}

// Channel `i` of all slots. `scales`: of the slots, where codes have 8 bits.
static inline void DecodeKeyChannel(const EncodedHeadBlock& e, const int64_t i, const float* scales, float* keys) {
  alignas(64) float codes[kSlots];
  UnpackCodes(e.block + i * kSlots * e.key_bits / 8, e.key_bits, kSlots, codes);
  if (e.key_bits == 8) {
    for (int64_t s = 0; s < kSlots; ++s) keys[s] = scales[s] * codes[s];
    return;
  }
  const int64_t groups = kSlots / e.key_group;
  for (int64_t g = 0; g < groups; ++g) {
    const std::byte* range = e.block + e.key_ranges + 4 * (i * groups + g);
    const float zero = WidenF16(F16At(range));
    const float scale = WidenF16(F16At(range + 2));
    for (int64_t s = 0; s < e.key_group; ++s) {
      keys[g * e.key_group + s] = zero + scale * codes[g * e.key_group + s];
    }
  }
}

// All dims of one slot, and zeros up to `padded`.
static inline void DecodeValueSlot(const EncodedHeadBlock& e, const int64_t slot, const int64_t dim,
                                   const int64_t padded, float* values) {
  const int64_t row_bytes = (dim * e.value_bits + 7) / 8;
  UnpackCodes(e.block + e.value_codes + slot * row_bytes, e.value_bits, dim, values);
  if (e.value_bits == 8) {
    const float scale = WidenF16(F16At(e.block + e.value_ranges + 2 * slot));
    for (int64_t i = 0; i < dim; ++i) values[i] = scale * values[i];
  } else {
    const int64_t groups = (dim + e.value_group - 1) / e.value_group;
    for (int64_t g = 0; g < groups; ++g) {
      const std::byte* range = e.block + e.value_ranges + 4 * (slot * groups + g);
      const float zero = WidenF16(F16At(range));
      const float scale = WidenF16(F16At(range + 2));
      const int64_t end = Least(dim, (g + 1) * e.value_group);
      for (int64_t i = g * e.value_group; i < end; ++i) values[i] = zero + scale * values[i];
    }
  }
  for (int64_t i = dim; i < padded; ++i) values[i] = 0.0F;
}

// The low half of each word is `even` as bf16, the high half `odd`.
static inline void StorePairs(const float* even, const float* odd, const int64_t n, uint32_t* to) {
  for (int64_t i = 0; i < n; i += 16) {
    alignas(64) uint32_t low[16];
    alignas(64) uint32_t high[16];
    Store(reinterpret_cast<float*>(low), RoundBf16(Load(even + i)));
    Store(reinterpret_cast<float*>(high), RoundBf16(Load(odd + i)));
    for (int64_t j = 0; j < 16; ++j) to[i + j] = (low[j] >> 16) | high[j];
  }
}

// Fills HeadElements(dim) elements of `dense`: bf16 pairs or f32.
static void DecodeHead(const EncodedHeadBlock& e, const int64_t dim, const bool bf16, void* dense) {
  alignas(64) float scales[kSlots];
  if (e.key_bits == 8) {
    for (int64_t s = 0; s < kSlots; ++s) scales[s] = WidenF16(F16At(e.block + e.key_ranges + 2 * s));
  }
  const int64_t padded = ValueDims(dim);
  alignas(64) float a[kMaxHeadDim];
  alignas(64) float b[kMaxHeadDim];
  if (!bf16) {
    auto* keys = static_cast<float*>(dense);
    for (int64_t i = 0; i < dim; ++i) DecodeKeyChannel(e, i, scales, keys + i * kSlots);
    float* values = keys + kSlots * dim;
    for (int64_t s = 0; s < kSlots; ++s) {
      DecodeValueSlot(e, s, dim, padded, a);
      for (int64_t i = 0; i < padded; ++i) values[(i / 16 * kSlots + s) * 16 + i % 16] = a[i];
    }
    return;
  }
  auto* keys = static_cast<uint32_t*>(dense);
  for (int64_t i = 0; i < dim; i += 2) {
    DecodeKeyChannel(e, i, scales, a);
    DecodeKeyChannel(e, i + 1, scales, b);
    StorePairs(a, b, kSlots, keys + i / 2 * kSlots);
  }
  uint32_t* values = keys + kSlots * dim / 2;
  for (int64_t s = 0; s < kSlots; s += 2) {
    DecodeValueSlot(e, s, dim, padded, a);
    DecodeValueSlot(e, s + 1, dim, padded, b);
    for (int64_t i = 0; i < padded; i += 16) StorePairs(a + i, b + i, 16, values + (i / 16 * 32 + s / 2) * 16);
  }
}
