// What the x86 instruction sets share once sixteen lanes have become eight: the rest of a reduction, whose order is
// part of the definition of the arithmetic, and prefetches. Included by v16_avx2_inl.h and v16_avx512_inl.h.

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
