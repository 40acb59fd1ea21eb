// Attention over all spans of a batch: which query rows, KV heads and superblocks make one task.
#pragma once

#include "base/worker_pool.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/scratch.h"

namespace invar::kernels::cpu {

// `partials` is scratch of the caller.
void RunAttention(const KernelTable& table, WorkerPool& pool, const AttentionArgs& args, DType kv, Scratch& partials);

}  // namespace invar::kernels::cpu
