// The embedded default backend: vector operations of one instruction set, split over the pool.
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/backend.h"

namespace invar::kernels::cpu {

StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const BackendOptions& options, WorkerPool& pool);

}  // namespace invar::kernels::cpu
