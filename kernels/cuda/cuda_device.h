// A GPU.
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/cuda/device.h"

namespace invar::kernels::cuda {

// The first device that the process may see (CUDA_VISIBLE_DEVICES says which). Errors: FAILED_PRECONDITION, in one
// sentence: no driver, one too old for this build, no device, one that is too old, or one that cannot read and write
// the host's memory where it lies.
StatusOr<std::unique_ptr<Device>> OpenCudaDevice();

}  // namespace invar::kernels::cuda
