// What this processor can run. Apart from isa.cc, so that a test can run the AVX-512 source emulated on any machine by
// linking another answer.
#pragma once

namespace invar::kernels::cpu {

// Threads: any.
bool HasAvx2();        // With FMA.
bool HasAvx512();      // The subsets the AVX-512 files are compiled for.
bool HasAvx512Bf16();  // And the bf16 pair product.

}  // namespace invar::kernels::cpu
