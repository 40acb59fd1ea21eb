// The longest tiles come first: blocks start in order, and the short ones fill the end.
#include "kernels/cuda/plan_attention.h"

#include <algorithm>

#include "kernels/numerics.h"

namespace invar::kernels::cuda {

AttentionPlan PlanAttention(const AttentionShape& shape, const std::span<const KvSpan> spans) {
  AttentionPlan plan;
  const int64_t group = shape.heads / shape.kv_heads;
  for (size_t s = 0; s < spans.size(); ++s) {
    const KvSpan& span = spans[s];
    const int64_t rows = span.rows * group;
    const int64_t count = (rows + kAttentionTileRows - 1) / kAttentionTileRows;
    for (int64_t index = count - 1; index >= 0; --index) {
      const int64_t first_row = index * kAttentionTileRows;
      const int64_t end_row = std::min(rows, first_row + kAttentionTileRows);
      const int64_t first_position = span.first_position + first_row / group;
      const int64_t last_position = span.first_position + (end_row - 1) / group;
      const int64_t from = shape.window > 0 ? std::max<int64_t>(0, first_position - shape.window + 1) : 0;
      const int64_t first_superblock = from / kSuperblockTokens;
      const auto superblocks = static_cast<int32_t>(last_position / kSuperblockTokens - first_superblock + 1);
      const bool split = count == 1 && superblocks > 1;
      for (int32_t head = 0; head < shape.kv_heads; ++head) {
        const auto tile = static_cast<int32_t>(plan.tiles.size());
        plan.tiles.push_back({.span = static_cast<int32_t>(s),
                              .kv_head = head,
                              .first_row = static_cast<int32_t>(first_row),
                              .first_superblock = static_cast<int32_t>(first_superblock),
                              .superblocks = superblocks,
                              .partial = split ? static_cast<int32_t>(plan.partials) : -1});
        for (int32_t part = 0; part < (split ? superblocks : 1); ++part) plan.tasks.push_back({tile, part});
        if (!split) continue;
        plan.split_tiles.push_back(tile);
        plan.partials += superblocks;
      }
    }
  }
  return plan;
}

}  // namespace invar::kernels::cuda
