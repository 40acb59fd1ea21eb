// One pass each: demand and positions are both sorted.
#include "cache/checkpoint/demand.h"

#include <algorithm>

#include "base/check.h"

namespace invar::cache {
namespace {

// Appends, or adds to the last where the depth is the same.
void Append(Demand& demand, const int32_t depth, const int64_t weight) {
  if (!demand.empty() && demand.back().depth == depth) {
    demand.back().weight += weight;
  } else {
    demand.push_back({depth, weight});
  }
}

}  // namespace

Demand DemandOfDepths(const std::span<const int32_t> depths, const int32_t length) {
  std::vector<int32_t> sorted(depths.begin(), depths.end());
  std::sort(sorted.begin(), sorted.end());
  Demand demand;
  for (const int32_t depth : sorted) {
    const int32_t clipped = std::min(depth, length);
    if (clipped > 0) Append(demand, clipped, kWeightOne);
  }
  return demand;
}

Demand FoldToGrid(const DemandView demand, const int32_t grid) {
  Check(grid > 0, "a grid has a step", grid);
  Demand folded;
  for (const DepthWeight& point : demand) {
    const int32_t depth = point.depth - point.depth % grid;
    if (depth > 0) Append(folded, depth, point.weight);
  }
  return folded;
}

int64_t TotalWeight(const DemandView demand) {
  int64_t total = 0;
  for (const DepthWeight& point : demand) total += point.weight;
  return total;
}

int64_t RecomputeCost(const DemandView demand, const std::span<const int32_t> positions, const int32_t restore_tokens) {
  int64_t cost = 0;
  size_t next = 0;
  for (const DepthWeight& point : demand) {
    while (next < positions.size() && positions[next] <= point.depth) ++next;
    const int64_t tokens = next == 0 ? point.depth : int64_t{point.depth} - positions[next - 1] + restore_tokens;
    cost += point.weight * tokens;
  }
  return cost;
}

void CheckDemand(const DemandView demand) {
  int32_t before = 0;
  int64_t total = 0;
  for (const DepthWeight& point : demand) {
    Check(point.depth > before, "depths of a demand ascend from 1", before, point.depth);
    Check(point.weight > 0, "weights of a demand are positive", point.depth, point.weight);
    Check(point.weight <= kCostMax - total, "weights of a demand fit in kCostMax", total, point.weight);
    total += point.weight;
    before = point.depth;
  }
  Check(before == 0 || total <= kCostMax / before, "weight x depth fits in kCostMax", total, before);
}

}  // namespace invar::cache
