// What the x86 instruction sets share once sixteen lanes have become eight: the rest of a reduction, whose order is
// part of the definition of the arithmetic, prefetches, and words of noise. Included by v16_avx2_inl.h and
// v16_avx512_inl.h.

// Sum by halves: lanes i and i + 4, then + 2, + 1.
static inline float SumOfEight(const __m256 eight) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
static inline float MaxOfEight(const __m256 eight) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
static inline void PrefetchNear(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
static inline void PrefetchFar(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

// Words of 32 bits in lanes of 64, whose high halves hold anything.
using Words = __m256i;
static constexpr int kWordLanes = 4;
static inline Words SetWords(const uint32_t x) { return _mm256_set1_epi64x(x); }
// x, x + 1, ...
static inline Words WordsFrom(const uint32_t x) {
  return _mm256_add_epi64(SetWords(x), _mm256_setr_epi64x(0, 1, 2, 3));
}
static inline Words XorWords(const Words a, const Words b) { return _mm256_xor_si256(a, b); }
// The whole product of the words.
static inline Words MulWords(const Words a, const Words b) { return _mm256_mul_epu32(a, b); }
static inline Words HighHalves(const Words a) { return _mm256_srli_epi64(a, 32); }
// A bit a lane: a >= least.
static inline uint32_t WordsAtLeast(const Words a, const Words least) {
  const __m256i found = _mm256_cmpeq_epi32(_mm256_max_epu32(a, least), a);
  return static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_slli_epi64(found, 32))));
}
static inline void StoreWords(uint64_t* p, const Words a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }
