// The causal convolution over all spans of a batch: spans and channels are split over threads, tokens are not.
#pragma once

#include "base/worker_pool.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"

namespace invar::kernels::cpu {

void RunCausalConv(const KernelTable& table, WorkerPool& pool, const ConvArgs& args);

}  // namespace invar::kernels::cpu
