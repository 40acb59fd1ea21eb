// Instruction sets with a bf16 pair product: one instruction a pair, in the order of WidenProduct.
struct Bf16Product {
  using A = uint32_t;  // A pair of bf16.
  using W = uint16_t;
  static constexpr int kPerStep = 2;
  static constexpr int kMostRows = kMaxTileRows;
  static inline __m512bh LoadW(const uint16_t* w) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(w)); }
  static inline v16 First(const v16 acc, const __m512bh&, const A&) { return acc; }
  static inline v16 Second(const v16 acc, const __m512bh& w, const A& a) {
    return _mm512_dpbf16_ps(acc, w, reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a))));
  }
};
