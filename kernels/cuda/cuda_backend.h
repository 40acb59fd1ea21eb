// The operations of kernels/backend.h on a device that runs the kernels of this folder.
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/product_library.h"

namespace invar::kernels::cuda {

// Weights are copied into the device's memory (PlaceWeights), and rows lie there (AllocateRows). All else that the
// backend is handed, pages, states and logs, must be memory that the device reads and writes where it lies. Operations
// are launched, and wait for nobody.
// `library` multiplies where it keeps the law (judged_products.h); null: our own kernels do. Errors:
// INVALID_ARGUMENT (activations are f16).
StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Device> device,
                                                   std::unique_ptr<ProductLibrary> library, DType activations,
                                                   WorkerPool& pool);

}  // namespace invar::kernels::cuda
