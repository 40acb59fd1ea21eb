// Products by a library where its rows do not see each other, by our own kernels elsewhere. A library promises no such
// thing, so at the first product with a matrix of some shape the device itself is asked: rows in batches of several
// sizes, at several places, must come out in equal bits, and near those of our own kernel.
// Which one computes depends on the library, the device and the shape alone, never on a batch.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "kernels/cuda/device.h"
#include "kernels/cuda/product_library.h"

namespace invar::kernels::cuda {

class JudgedProducts {
 public:
  // Requires: `device` outlives it. `library` null: all by our own kernels.
  JudgedProducts(Device& device, std::unique_ptr<ProductLibrary> library)
      : device_(device), library_(std::move(library)) {}

  void Multiply(const ProductArgs& args);

 private:
  bool MayUseLibrary(const ProductArgs& args);
  bool Passes(const PackedMatrix& weight);

  Device& device_;
  const std::unique_ptr<ProductLibrary> library_;
  std::map<std::pair<int64_t, int64_t>, bool> verdicts_;  // By rows and columns of the weight.
};

}  // namespace invar::kernels::cuda
