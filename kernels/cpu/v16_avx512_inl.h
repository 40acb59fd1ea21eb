// v16: sixteen float lanes as one 512-bit register. Included inside one instruction set's namespace.
// Every operation is a single IEEE operation a lane under the thread's MXCSR (denormals flushed). The bf16 pair product
// (products_bf16_inl.h) ignores MXCSR but flushes and rounds the same way; the self-test at start proves it (isa.cc).

#include "kernels/cpu/eight_lanes_inl.h"

using v16 = __m512;

static inline v16 Zero() { return _mm512_setzero_ps(); }
static inline v16 Set1(const float x) { return _mm512_set1_ps(x); }
static inline v16 Load(const float* p) { return _mm512_loadu_ps(p); }
static inline __mmask16 LanesBelow(const int64_t n) {
  return n <= 0 ? __mmask16{0} : (n >= 16 ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1U << n) - 1U));
}
static inline v16 LoadPartial(const float* p, const int64_t n) { return _mm512_maskz_loadu_ps(LanesBelow(n), p); }
static inline void Store(float* p, const v16 a) { _mm512_storeu_ps(p, a); }
static inline void StorePartial(float* p, const v16 a, const int64_t n) { _mm512_mask_storeu_ps(p, LanesBelow(n), a); }
static inline v16 Add(const v16 a, const v16 b) { return _mm512_add_ps(a, b); }
static inline v16 Sub(const v16 a, const v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 Mul(const v16 a, const v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 Div(const v16 a, const v16 b) { return _mm512_div_ps(a, b); }
static inline v16 Fma(const v16 a, const v16 b, const v16 c) { return _mm512_fmadd_ps(a, b, c); }
// The second operand where either is NaN or both are zero.
static inline v16 Max(const v16 a, const v16 b) { return _mm512_max_ps(a, b); }
static inline v16 Min(const v16 a, const v16 b) { return _mm512_min_ps(a, b); }
static inline v16 Sqrt(const v16 a) { return _mm512_sqrt_ps(a); }
static inline v16 SelectLess(const v16 x, const v16 y, const v16 yes, const v16 no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), no, yes);
}
// Lanes [begin, end) of a; the others are `other`.
static inline v16 KeepLanes(const v16 a, const int begin, const int end, const float other) {
  const unsigned keep = static_cast<unsigned>(LanesBelow(end)) & ~static_cast<unsigned>(LanesBelow(begin));
  return _mm512_mask_blend_ps(static_cast<__mmask16>(keep), _mm512_set1_ps(other), a);
}
// 2^n, where n + 1.5 * 2^23 was computed in float, n in [-126, 127].
static inline v16 Pow2OfBiased(const v16 a) {
  const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(a), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(0x3f800000)));
}
// The high halves hold the rounded bf16, the low halves are zero. Not vcvtneps2bf16, which flushes denormals.
static inline __m512i RoundedBf16High(const v16 a) {
  const __m512i bits = _mm512_castps_si512(a);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __m512i chosen = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), rounded, quiet);
  return _mm512_and_si512(chosen, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
}
// Rounded to the nearest even bf16, kept as float.
static inline v16 RoundBf16(const v16 a) { return _mm512_castsi512_ps(RoundedBf16High(a)); }
static inline void StoreBf16(uint16_t* p, const v16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(RoundedBf16High(a), 16)));
}
static inline v16 LoadBf16(const uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
// Sixteen pairs (even, odd) of bf16, as two vectors of floats.
struct Pairs {
  v16 even;
  v16 odd;
};
static inline Pairs LoadPairs(const uint16_t* p) {
  const __m512i both = _mm512_loadu_si512(p);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000))))};
}
// Sixteen f16 as floats.
static inline v16 LoadF16(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// Sum by halves: lanes i and i + 8, then + 4, + 2, + 1.
static inline float SumLanes(const v16 a) {
  return SumOfEight(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
}
static inline float MaxLanes(const v16 a) {
  return MaxOfEight(_mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
}

// Largest tiles of the product kernel: rows, and column groups of 16 for each number of rows (24 of 32 registers).
static constexpr int kMaxTileRows = 6;
static constexpr int kMaxWideningRows = 6;
static constexpr int kTileGroups[kMaxTileRows + 1] = {0, 4, 4, 4, 4, 4, 4};
// Column groups of the state that one sweep of the gated delta rule takes: two sums and a difference each. The columns
// of 128 rows are 16 KiB; in a first-level cache of 32 KiB those that come and go have a place beside them.
static constexpr int kDeltaGroups = 2;

// Column groups widened at once, and memory for them: most of a first-level cache of 48 KiB (matmul_inl.h).
static constexpr int kWidenGroups = 4;
static constexpr int64_t kStripeBytes = 32768;
// Whether the weights of all groups fit beside the accumulators, so that one broadcast serves every group.
static constexpr bool kKeepsWeights = true;
