// Instruction sets with a bf16 pair product: one instruction a pair, in the order of WidenProduct.
static constexpr bool kExpands = false;

struct Bf16Product {
  using A = uint32_t;  // A pair of bf16.
  using W = uint16_t;
  static constexpr int kPerStep = 2;
  static constexpr int kTerms = 1;
  static constexpr int kMostRows = kMaxTileRows;
  template <int kTerm>
  static inline __m512bh LoadW(const uint16_t* w) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(w));
  }
  template <int kTerm>
  static inline v16 AddTerm(const v16 acc, const __m512bh& w, const A& a) {
    return _mm512_dpbf16_ps(acc, w, reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a))));
  }
};
