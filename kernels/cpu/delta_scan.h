// The gated delta rule over all spans of a batch: heads and columns of the state are split over threads, tokens are
// not.
#pragma once

#include "base/worker_pool.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"

namespace invar::kernels::cpu {

void RunDeltaScan(const KernelTable& table, WorkerPool& pool, const DeltaArgs& args);

}  // namespace invar::kernels::cpu
