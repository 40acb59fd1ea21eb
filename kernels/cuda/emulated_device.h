// The device of the emulation: the host's memory, and kernels that have run when their launch returns.
#pragma once

#include <memory>

#include "kernels/cuda/device.h"

namespace invar::kernels::cuda {

std::unique_ptr<Device> MakeEmulatedDevice();

}  // namespace invar::kernels::cuda
