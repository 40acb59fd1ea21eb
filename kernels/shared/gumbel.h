// Gumbel noise from words of Philox, in double with elementary functions of our own: the host and a device that compute
// it from this one source, without fusing, have the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace invar::kernels {

// Natural logarithm of a positive normal double: mantissa in [sqrt(1/2), sqrt(2)), then 2 atanh(s).
constexpr double NaturalLog(const double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 0.0;
  for (int n = 23; n >= 1; n -= 2) p = p * z + 1.0 / n;
  return static_cast<double>(exponent) * 0.6931471805599453 + 2.0 * s * p;
}

// -log(-log(u)) of a word of noise, u = (word + 1/2) / 2^32. In [-3.2, kMostGumbel], ascending in `word`.
inline constexpr double kMostGumbel = 22.9;
constexpr double GumbelOf(const uint32_t word) {
  const double u = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -NaturalLog(-NaturalLog(u));
}

}  // namespace invar::kernels
