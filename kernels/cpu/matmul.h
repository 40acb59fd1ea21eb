// Products over whole matrices: which rows and panels make one task.
#pragma once

#include <span>

#include "base/worker_pool.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/scratch.h"

namespace invar::kernels::cpu {

// One product of some rows with one matrix. Rows are in product form already (see ProductRows).
struct MatmulJob {
  Product product = Product::kBf16;
  const void* a = nullptr;
  int64_t a_stride = 0;  // Elements.
  int64_t rows = 0;
  const PackedMatrix* weight = nullptr;
  const float* bias = nullptr;
  bool add = false;
  float* out = nullptr;
  int64_t out_stride = 0;
};

Product ProductOf(DType activations, DType weight);

// Bytes and element stride of `cols` activations in product form.
int64_t ProductStride(int64_t cols);
int64_t ProductElementBytes(const KernelTable& table, DType activations);
// Whether rows of this type must be copied (KernelTable::copy_row) before a product.
bool NeedsCopy(const KernelTable& table, DType activations, int64_t cols);

// Runs all jobs in one fork. Tasks split panels and rows, never a sum.
void RunJobs(const KernelTable& table, WorkerPool& pool, std::span<const MatmulJob> jobs);

}  // namespace invar::kernels::cpu
