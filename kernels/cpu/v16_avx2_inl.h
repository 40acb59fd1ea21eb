// v16: sixteen float lanes as two 256-bit registers. Included inside one instruction set's namespace.
// Every operation is a single IEEE operation a lane under the thread's MXCSR (denormals flushed).

#include "kernels/cpu/eight_lanes_inl.h"

struct v16 {
  __m256 lo;
  __m256 hi;
};

static inline v16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline v16 Set1(const float x) {
  const __m256 y = _mm256_set1_ps(x);
  return {y, y};
}
static inline v16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline __m256i LanesBelow(const int64_t n) {
  const int clamped = n < 0 ? 0 : (n > 8 ? 8 : static_cast<int>(n));
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(clamped), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline v16 LoadPartial(const float* p, const int64_t n) {
  return {_mm256_maskload_ps(p, LanesBelow(n)), _mm256_maskload_ps(p + 8, LanesBelow(n - 8))};
}
static inline void Store(float* p, const v16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
static inline void StorePartial(float* p, const v16 a, const int64_t n) {
  _mm256_maskstore_ps(p, LanesBelow(n), a.lo);
  _mm256_maskstore_ps(p + 8, LanesBelow(n - 8), a.hi);
}
static inline v16 Add(const v16 a, const v16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
static inline v16 Sub(const v16 a, const v16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
static inline v16 Mul(const v16 a, const v16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
static inline v16 Div(const v16 a, const v16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
static inline v16 Fma(const v16 a, const v16 b, const v16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
// The second operand where either is NaN or both are zero.
static inline v16 Max(const v16 a, const v16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
static inline v16 Min(const v16 a, const v16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
static inline v16 Sqrt(const v16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
static inline v16 SelectLess(const v16 x, const v16 y, const v16 yes, const v16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(x.lo, y.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(x.hi, y.hi, _CMP_LT_OQ))};
}
// Lanes [begin, end) of a; the others are `other`.
static inline v16 KeepLanes(const v16 a, const int begin, const int end, const float other) {
  const __m256 o = _mm256_set1_ps(other);
  const __m256i lo = _mm256_andnot_si256(LanesBelow(begin), LanesBelow(end));
  const __m256i hi = _mm256_andnot_si256(LanesBelow(begin - 8), LanesBelow(end - 8));
  return {_mm256_blendv_ps(o, a.lo, _mm256_castsi256_ps(lo)), _mm256_blendv_ps(o, a.hi, _mm256_castsi256_ps(hi))};
}
static inline __m256 Pow2OfBiased8(const __m256 a) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(a), 23), _mm256_set1_epi32(0x3f800000)));
}
// 2^n, where n + 1.5 * 2^23 was computed in float, n in [-126, 127].
static inline v16 Pow2OfBiased(const v16 a) { return {Pow2OfBiased8(a.lo), Pow2OfBiased8(a.hi)}; }
// The high halves hold the rounded bf16, the low halves are zero.
static inline __m256i RoundedBf16High(const __m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_and_si256(_mm256_blendv_epi8(rounded, quiet, nan), _mm256_set1_epi32(static_cast<int>(0xffff0000)));
}
// Rounded to the nearest even bf16, kept as float.
static inline v16 RoundBf16(const v16 a) {
  return {_mm256_castsi256_ps(RoundedBf16High(a.lo)), _mm256_castsi256_ps(RoundedBf16High(a.hi))};
}
static inline void StoreBf16(uint16_t* p, const v16 a) {
  const __m256i lo = _mm256_srli_epi32(RoundedBf16High(a.lo), 16);
  const __m256i hi = _mm256_srli_epi32(RoundedBf16High(a.hi), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed);
}
static inline v16 LoadBf16(const uint16_t* p) {
  const __m128i lo = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i hi = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(lo), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(hi), 16))};
}
// Sixteen pairs (even, odd) of bf16, as two vectors of floats.
struct Pairs {
  v16 even;
  v16 odd;
};
static inline Pairs LoadPairs(const uint16_t* p) {
  const __m256i lo = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i hi = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16));
  const __m256i high_half = _mm256_set1_epi32(static_cast<int>(0xffff0000));
  return {{_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))},
          {_mm256_castsi256_ps(_mm256_and_si256(lo, high_half)), _mm256_castsi256_ps(_mm256_and_si256(hi, high_half))}};
}
// Sixteen f16 as floats.
static inline v16 LoadF16(const std::byte* p) {
  const auto* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
// Sum by halves: lanes i and i + 8, then + 4, + 2, + 1.
static inline float SumLanes(const v16 a) { return SumOfEight(_mm256_add_ps(a.lo, a.hi)); }
static inline float MaxLanes(const v16 a) { return MaxOfEight(_mm256_max_ps(a.lo, a.hi)); }

// Largest tiles of the product kernel: rows, and column groups of 16 for each number of rows. Sixteen registers hold
// the accumulators (2 a row and group), the weights (2) and a broadcast; widening pairs on the way takes three more, so
// a sixth row would spill, at 25 % of the speed.
static constexpr int kMaxTileRows = 6;
static constexpr int kMaxWideningRows = 5;
static constexpr int kTileGroups[kMaxTileRows + 1] = {0, 4, 2, 1, 1, 1, 1};
// Column groups of the state that one sweep of the gated delta rule takes: two sums and a difference each.
static constexpr int kDeltaGroups = 2;

// Column groups widened at once, and memory for them: half of a first-level cache of 32 KiB (matmul_inl.h).
static constexpr int kWidenGroups = 1;
static constexpr int64_t kStripeBytes = 16384;
// Whether the weights of all groups fit beside the accumulators, so that one broadcast serves every group.
static constexpr bool kKeepsWeights = false;
