// What a device can do at most, measured: what `invar bench` states kernels as shares of.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/cuda/device.h"
#include "kernels/machine_limits.h"

namespace invar::kernels::cuda {

// --- Launches of `blocks` blocks (probe.cu); `out` takes 4 bytes and is not written ---
void ProbeRead(const void* memory, int64_t bytes, int64_t blocks, void* out, Stream stream);
void ProbeUpdate(void* memory, int64_t bytes, int64_t blocks, Stream stream);
// Each gives the operations that it does: floating-point ones of products, fused multiply-adds.
double ProbeProducts(int64_t rounds, int64_t blocks, void* out, Stream stream);
double ProbeLanes(int64_t rounds, int64_t blocks, void* out, Stream stream);

// Waits. Takes memory of the device for as long as it runs. Errors: RESOURCE_EXHAUSTED.
StatusOr<MachineLimits> MeasureLimits(Device& device);

}  // namespace invar::kernels::cuda
