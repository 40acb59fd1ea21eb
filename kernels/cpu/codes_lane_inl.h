// What the sets without a byte product share (codes_avx2_inl.h, codes_scalar_inl.h): whole numbers lane by lane, put
// into bytes one after another, and reductions row by row.

// Sixteen whole numbers.
struct Wholes {
  int32_t lane[16];
};

// 64 numbers of a byte each, signed or not, of four v16.
static inline void PutSignedBytes(std::byte* to, const Wholes& a, const Wholes& b, const Wholes& c, const Wholes& d) {
  const Wholes* const all[4] = {&a, &b, &c, &d};
  for (const Wholes* x : all) {
    for (int i = 0; i < 16; ++i) *to++ = static_cast<std::byte>(x->lane[i]);
  }
}
static inline void PutUnsignedBytes(std::byte* to, const Wholes& a, const Wholes& b, const Wholes& c, const Wholes& d) {
  PutSignedBytes(to, a, b, c, d);
}

// SumLanes and MaxLanes of some, at out[4 r].
template <int kCount>
static inline void SumLanesOf(const v16* x, float* out) {
  for (int r = 0; r < kCount; ++r) out[4 * r] = SumLanes(x[r]);
}
template <int kCount>
static inline void MaxLanesOf(const v16* x, float* out) {
  for (int r = 0; r < kCount; ++r) out[4 * r] = MaxLanes(x[r]);
}
