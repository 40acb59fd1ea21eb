// Matrix products by a library's kernels. Kinds: cublas_lt.cc in the module; fakes in tests. Whether one keeps the law
// is judged before it is used (judged_products.h).
#pragma once

#include <string>

#include "kernels/cuda/ops.h"

namespace invar::kernels::cuda {

class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;

  // Part of the numerics id: results under one name have the same bits.
  virtual std::string name() const = 0;
  // Launches out = x W^T, or out += it, always by one algorithm for a weight of these rows and columns. False: not this
  // one, and nothing was launched. Requires: bf16 both, no bias, IsAligned.
  virtual bool Multiply(const ProductArgs& args, Stream stream) = 0;
};

// Rows begin at multiples of 16 bytes, in x and out, whichever they are.
inline bool IsAligned(const ProductArgs& args) {
  return reinterpret_cast<uintptr_t>(args.x.data) % 16 == 0 && args.x.stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(args.out.data) % 16 == 0 && args.out.stride % 4 == 0;
}

}  // namespace invar::kernels::cuda
