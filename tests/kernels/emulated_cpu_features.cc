// Stands in for kernels/cpu/cpu_features.cc where the AVX-512 source is emulated: this machine runs everything.
#include "kernels/cpu/cpu_features.h"

namespace invar::kernels::cpu {

bool HasAvx2() { return true; }
bool HasAvx512() { return true; }
bool HasAvx512Bf16() { return true; }

}  // namespace invar::kernels::cpu
