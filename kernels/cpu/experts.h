// Mixture of experts: routing, and the chosen experts' products in two forks over all experts.
#pragma once

#include "base/worker_pool.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/scratch.h"

namespace invar::kernels::cpu {

struct ExpertScratch {
  Scratch rows;
  Scratch hidden;
  Scratch inner;
  Scratch output;

  int64_t bytes() const { return rows.bytes() + hidden.bytes() + inner.bytes() + output.bytes(); }
};

void RunExperts(const KernelTable& table, WorkerPool& pool, const ExpertsArgs& args, DType activations,
                ExpertScratch& scratch);

}  // namespace invar::kernels::cpu
