// Cells are a sorted vector: a family has hundreds at most, and plans read them in order.
#include "cache/checkpoint/overlap_histogram.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"

namespace invar::cache {
namespace {

int64_t Sum(const std::span<const CellWeight> cells) {
  int64_t sum = 0;
  for (const CellWeight& cell : cells) sum += cell.weight;
  return sum;
}

}  // namespace

bool DecayClock::Tick() {
  one_ += one_ >> kDecayShift;
  if (one_ < int64_t{1} << 32) return false;
  one_ >>= kRescaleBits;
  return true;
}

void OverlapHistogram::Add(const int32_t cell, const int64_t weight) {
  Check(cell >= 0 && weight > 0, "an observation has a cell and a weight", cell, weight);
  const auto at = std::lower_bound(cells_.begin(), cells_.end(), cell,
                                   [](const CellWeight& entry, const int32_t value) { return entry.cell < value; });
  if (at != cells_.end() && at->cell == cell) {
    at->weight += weight;
  } else {
    cells_.insert(at, {cell, weight});
  }
  total_ += weight;
}

void OverlapHistogram::Rescale() {
  for (CellWeight& cell : cells_) cell.weight >>= DecayClock::kRescaleBits;
  std::erase_if(cells_, [](const CellWeight& cell) { return cell.weight == 0; });
  total_ = Sum(cells_);
}

int32_t OverlapHistogram::Drift() const {
  const int64_t planned_total = Sum(planned_);
  if (total_ == 0 || planned_total == 0) return total_ == planned_total ? 0 : 1000;
  constexpr int64_t kShare =
      int64_t{1} << 20;  // Totals stay below 2^42: one observation weighs < 2^32, 512 of them last.
  int64_t distance = 0;  // Twice the total variation, in units of kShare.
  size_t i = 0;
  size_t j = 0;
  while (i < cells_.size() || j < planned_.size()) {
    const bool is_now = j == planned_.size() || (i < cells_.size() && cells_[i].cell <= planned_[j].cell);
    const bool was = i == cells_.size() || (j < planned_.size() && planned_[j].cell <= cells_[i].cell);
    const int64_t now = is_now ? cells_[i++].weight * kShare / total_ : 0;
    const int64_t before = was ? planned_[j++].weight * kShare / planned_total : 0;
    distance += std::abs(now - before);
  }
  return static_cast<int32_t>(distance * 1000 / (2 * kShare));
}

void OverlapHistogram::CheckIntegrity() const {
  Check(total_ == Sum(cells_), "the total is the sum of the cells", total_);
  for (size_t i = 0; i < cells_.size(); ++i) {
    Check(cells_[i].weight > 0, "a cell that is kept has weight", cells_[i].cell);
    Check(i == 0 || cells_[i - 1].cell < cells_[i].cell, "cells ascend", cells_[i].cell);
  }
}

}  // namespace invar::cache
