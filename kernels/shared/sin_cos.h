// Sine and cosine in double, written out, so that their bits depend neither on a C library nor on the device: reduction
// to |r| <= pi/4 by three parts of pi/2 (33 + 33 + 53 bits: multiples below 2^20 are exact), then Taylor series.
// Not for the per-instruction-set files, which share no inline function (see cpu/kernel_table.h).
#pragma once

#include <cstdint>

namespace invar::kernels {

struct SinCos {
  double sin;
  double cos;
};

constexpr double SinSeries(const double r) {
  const double z = r * r;
  double p = -1.0 / 121645100408832000.0;  // -1/19!
  p = p * z + 1.0 / 355687428096000.0;
  p = p * z - 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  return r + r * (z * p);
}

constexpr double CosSeries(const double r) {
  const double z = r * r;
  double p = -1.0 / 6402373705728000.0;  // -1/18!
  p = p * z + 1.0 / 20922789888000.0;
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  p = p * z - 0.5;
  return 1.0 + z * p;
}

// Error below 2e-16 for |x| < 2^26. Threads: any.
constexpr SinCos SinCosOf(const double x) {
  constexpr double kHalfPiHigh = 1.57079632673412561417e+00;    // First 33 bits of pi/2.
  constexpr double kHalfPiMiddle = 6.07710050630396597660e-11;  // Next 33.
  constexpr double kHalfPiLow = 2.02226624879595063154e-21;     // The rest.
  constexpr double kMagic = 6755399441055744.0;                 // 1.5 * 2^52: adding it rounds to a whole number.
  constexpr double kTwoOverPi = 0.63661977236758134308;
  const double n = (x * kTwoOverPi + kMagic) - kMagic;
  const double r = ((x - n * kHalfPiHigh) - n * kHalfPiMiddle) - n * kHalfPiLow;
  const double sin = SinSeries(r);
  const double cos = CosSeries(r);
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

}  // namespace invar::kernels
