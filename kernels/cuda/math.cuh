// Elementary functions of one float, the same polynomials as kernels/cpu/math_inl.h: results depend on no library.
#pragma once

#include "kernels/cuda/device_ops.cuh"

namespace invar::kernels::cuda {

// e^x: 2^n times a polynomial of degree 7 in |r| <= ln(2) / 2. 0 below -87.3; at most e^88.3, so never infinite.
__device__ __forceinline__ float Exp(const float x) {
  if (x < -87.3F) return 0.0F;
  const float y = x > 88.3F ? 88.3F : x;
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number.
  const float biased = Fma(y, 1.44269504F, kMagic);
  const float n = biased - kMagic;
  float r = Fma(n, -0.693359375F, y);
  r = Fma(n, 2.12194440e-4F, r);
  float p = 1.0F / 5040.0F;
  p = Fma(p, r, 1.0F / 720.0F);
  p = Fma(p, r, 1.0F / 120.0F);
  p = Fma(p, r, 1.0F / 24.0F);
  p = Fma(p, r, 1.0F / 6.0F);
  p = Fma(p, r, 0.5F);
  p = Fma(p, r, 1.0F);
  p = Fma(p, r, 1.0F);
  // The low bits of `biased` are n: moved to the exponent, with its bias added.
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(biased) << 23) + 0x3f800000U);
}

__device__ __forceinline__ float Sigmoid(const float x) { return 1.0F / (1.0F + Exp(-x)); }
__device__ __forceinline__ float Silu(const float x) { return x * Sigmoid(x); }

// log(1 + y), 0 <= y <= 1: 2 atanh(s), s = y / (2 + y) <= 1/3.
__device__ __forceinline__ float Log1p(const float y) {
  const float s = y / (2.0F + y);
  const float z = s * s;
  float p = 1.0F / 17.0F;
  p = Fma(p, z, 1.0F / 15.0F);
  p = Fma(p, z, 1.0F / 13.0F);
  p = Fma(p, z, 1.0F / 11.0F);
  p = Fma(p, z, 1.0F / 9.0F);
  p = Fma(p, z, 1.0F / 7.0F);
  p = Fma(p, z, 1.0F / 5.0F);
  p = Fma(p, z, 1.0F / 3.0F);
  p = Fma(p, z, 1.0F);
  return (s + s) * p;
}

__device__ __forceinline__ float Softplus(const float x) {
  const float magnitude = x < 0.0F ? -x : x;
  return (x > 0.0F ? x : 0.0F) + Log1p(Exp(-magnitude));
}

__device__ __forceinline__ float InverseSquareRoot(const float x) { return 1.0F / SquareRoot(x); }

}  // namespace invar::kernels::cuda
