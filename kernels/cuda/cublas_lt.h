// Products by cuBLASLt, one algorithm a shape: no split of k, no workspace, chosen once by the library's own heuristic.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "kernels/cuda/product_library.h"

namespace invar::kernels::cuda {

// Opens libcublasLt.so of the version this was built with, where the system's loader finds it. Errors:
// FAILED_PRECONDITION, in one sentence.
StatusOr<std::unique_ptr<ProductLibrary>> OpenCublasLt();

}  // namespace invar::kernels::cuda
