// Asks the processor and the system through the compiler. Own file, compiled without vector flags: it runs before
// anything is chosen.
#include "kernels/cpu/cpu_features.h"

namespace invar::kernels::cpu {

bool HasAvx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool HasAvx512() {
  __builtin_cpu_init();
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

// Every processor with the bf16 product has the byte product too; asked all the same, as the build uses both.
bool HasAvx512Bf16() {
  return HasAvx512() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
}

}  // namespace invar::kernels::cpu
