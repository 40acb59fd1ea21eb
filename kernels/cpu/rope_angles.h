// Sine and cosine in double, written out, so that their bits do not depend on a C library.
#pragma once

namespace invar::kernels::cpu {

struct SinCos {
  double sin;
  double cos;
};

// Error below 2e-16 for |x| < 2^26. Threads: any.
SinCos SinCosOf(double x);

}  // namespace invar::kernels::cpu
