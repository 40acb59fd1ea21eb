// Half precision without the machine's conversion. Included by v16_scalar_inl.h.

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

// Sixteen of them.
static inline void WidenF16s(const std::byte* from, float* to) {
  uint16_t halves[16];
  __builtin_memcpy(halves, from, sizeof(halves));
  for (int i = 0; i < 16; ++i) to[i] = WidenF16(halves[i]);
}
