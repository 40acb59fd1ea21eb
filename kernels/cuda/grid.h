// How many blocks a kernel runs in.
#pragma once

#include <cstdint>

namespace invar::kernels::cuda {

struct Grid {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;
};

}  // namespace invar::kernels::cuda
