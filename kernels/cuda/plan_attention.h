// Cuts a batch's attention into tiles and blocks of work. Which cut is taken changes no bits (attention.cu), only who
// works when.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/ops.h"

namespace invar::kernels::cuda {

struct AttentionPlan {
  std::vector<AttentionTile> tiles;
  std::vector<AttentionTask> tasks;
  std::vector<int32_t> split_tiles;
  int64_t partials = 0;
};

// A span that is one tile a KV head (decode, short verification) has its superblocks computed side by side: it alone
// would keep as many multiprocessors busy as it has KV heads. Longer spans have tiles enough.
AttentionPlan PlanAttention(const AttentionShape& shape, std::span<const KvSpan> spans);

}  // namespace invar::kernels::cuda
