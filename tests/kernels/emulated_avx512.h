// Runs the AVX-512 source on any machine: its intrinsics by SIMDe's portable forms, and by ours where SIMDe has none
// or, for the bf16 pair product, another order of sums than the instruction's (even after odd, each fused, denormals
// flushed).
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/fma.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/bf16.h"

namespace invar::kernels::emulated {

template <typename To, typename From>
inline To Bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

struct Lanes {
  float f[16];
};

inline simde__m512 MaskzLoad(const uint32_t mask, const float* p) {
  Lanes lanes{};
  for (int i = 0; i < 16; ++i) lanes.f[i] = ((mask >> i) & 1U) != 0 ? p[i] : 0.0F;
  return Bits<simde__m512>(lanes);
}
inline void MaskStore(float* p, const uint32_t mask, const simde__m512 a) {
  const auto lanes = Bits<Lanes>(a);
  for (int i = 0; i < 16; ++i) {
    if (((mask >> i) & 1U) != 0) p[i] = lanes.f[i];
  }
}
inline simde__m512 PairProduct(const simde__m512 acc, const simde__m512i w, const simde__m512i a) {
  auto sum = Bits<Lanes>(acc);
  struct Pairs {
    uint32_t u[16];
  };
  const auto wp = Bits<Pairs>(w);
  const auto ap = Bits<Pairs>(a);
  for (int i = 0; i < 16; ++i) {
    const float w_even = Bits<float>(wp.u[i] << 16), w_odd = Bits<float>(wp.u[i] & 0xffff0000U);
    const float a_even = Bits<float>(ap.u[i] << 16), a_odd = Bits<float>(ap.u[i] & 0xffff0000U);
    // One hardware lane each, so that MXCSR's flushing applies as it does in the instruction.
    const __m128 odd = _mm_fmadd_ss(_mm_set_ss(w_odd), _mm_set_ss(a_odd), _mm_set_ss(sum.f[i]));
    sum.f[i] = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(w_even), _mm_set_ss(a_even), odd));
  }
  return Bits<simde__m512>(sum);
}

inline __m256i LowHalves(const simde__m512i a) {
  struct Words {
    uint32_t u[16];
  };
  struct Halves {
    uint16_t u[16];
  };
  const auto words = Bits<Words>(a);
  Halves halves;
  for (int i = 0; i < 16; ++i) halves.u[i] = static_cast<uint16_t>(words.u[i]);
  return Bits<__m256i>(halves);
}

inline simde__m512i WidenHalves(const __m256i a) {
  struct Words {
    uint32_t u[16];
  };
  struct Halves {
    uint16_t u[16];
  };
  const auto halves = Bits<Halves>(a);
  Words words;
  for (int i = 0; i < 16; ++i) words.u[i] = halves.u[i];
  return Bits<simde__m512i>(words);
}

inline simde__m512 WidenF16s(const __m256i a) {
  struct Halves {
    uint16_t u[16];
  };
  const auto halves = Bits<Halves>(a);
  Lanes lanes;
  for (int i = 0; i < 16; ++i) lanes.f[i] = FloatFromF16(halves.u[i]);
  return Bits<simde__m512>(lanes);
}

inline __m128i LowBytes(const simde__m512i a) {
  struct Words {
    uint32_t u[16];
  };
  struct Bytes {
    uint8_t u[16];
  };
  const auto words = Bits<Words>(a);
  Bytes bytes;
  for (int i = 0; i < 16; ++i) bytes.u[i] = static_cast<uint8_t>(words.u[i]);
  return Bits<__m128i>(bytes);
}

inline simde__m512 FloatsOf(const simde__m512i a) {
  struct Words {
    int32_t w[16];
  };
  const auto words = Bits<Words>(a);
  Lanes lanes;
  for (int i = 0; i < 16; ++i) lanes.f[i] = static_cast<float>(words.w[i]);
  return Bits<simde__m512>(lanes);
}

inline simde__m512i NearestOf(const simde__m512 a) {
  const auto lanes = Bits<Lanes>(a);
  struct Words {
    int32_t w[16];
  } words;
  for (int i = 0; i < 16; ++i) words.w[i] = _mm_cvtss_si32(_mm_set_ss(lanes.f[i]));
  return Bits<simde__m512i>(words);
}

// Fours of a, then fours of b.
inline simde__m512 ShuffleFours(const simde__m512 a, const simde__m512 b, const int order) {
  const auto from_a = Bits<Lanes>(a);
  const auto from_b = Bits<Lanes>(b);
  Lanes out;
  for (int i = 0; i < 16; ++i) {
    out.f[i] = (i < 8 ? from_a : from_b).f[4 * ((order >> (i / 4 * 2)) & 3) + i % 4];
  }
  return Bits<simde__m512>(out);
}

// Inside each four lanes.
inline simde__m512 Permute(const simde__m512 a, const int order) {
  const auto lanes = Bits<Lanes>(a);
  Lanes out;
  for (int i = 0; i < 16; ++i) out.f[i] = lanes.f[i / 4 * 4 + ((order >> (i % 4 * 2)) & 3)];
  return Bits<simde__m512>(out);
}

inline __m256 Half(const simde__m512 a, const int which) {
  struct Halves {
    __m256 half[2];
  };
  return Bits<Halves>(a).half[which];
}

}  // namespace invar::kernels::emulated

#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps(mask, p) invar::kernels::emulated::MaskzLoad(mask, p)
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps(p, mask, a) invar::kernels::emulated::MaskStore(p, mask, a)
#undef __m512bh
#define __m512bh simde__m512i
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps(acc, w, a) invar::kernels::emulated::PairProduct(acc, w, a)
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16(a) invar::kernels::emulated::LowHalves(a)
#undef _mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi8(a) invar::kernels::emulated::LowBytes(a)
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(a) invar::kernels::emulated::WidenHalves(a)
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(a) invar::kernels::emulated::FloatsOf(a)
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(a) invar::kernels::emulated::WidenF16s(a)
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(a, which) invar::kernels::emulated::Half(a, which)
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32(a) invar::kernels::emulated::NearestOf(a)
#undef _mm512_permute_ps
#define _mm512_permute_ps(a, order) invar::kernels::emulated::Permute(a, order)
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4(a, b, order) invar::kernels::emulated::ShuffleFours(a, b, order)
