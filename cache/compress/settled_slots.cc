// Thinning out in place, head by head.
#include "cache/compress/settled_slots.h"

#include <algorithm>

#include "base/check.h"

namespace invar::cache {

SettledSlots::SettledSlots(const kernels::PageShape& shape, const int64_t before, const int64_t count,
                           const int64_t tokens, std::pmr::memory_resource* const scratch)
    : heads_(shape.kv_heads),
      dim_(shape.head_dim),
      before_(before),
      stride_(count),
      tokens_(tokens),
      count_(count),
      keys_(Take(scratch, heads_ * count * dim_)),
      values_(Take(scratch, heads_ * count * dim_)),
      marks_(heads_ * count) {}

SettledSlots::Floats SettledSlots::Take(std::pmr::memory_resource* const from, const int64_t count) {
  return {static_cast<float*>(from->allocate(static_cast<size_t>(count) * sizeof(float))), {from, count}};
}

void SettledSlots::Keep(const std::span<const uint8_t> keep) {
  Check(static_cast<int64_t>(keep.size()) == heads_ * count_, "every slot is judged", keep.size(), count_);
  int64_t left = 0;
  for (int64_t h = 0; h < heads_; ++h) {
    int64_t to = 0;
    for (int64_t from = 0; from < count_; ++from) {
      if (keep[h * count_ + from] == 0) continue;
      if (to != from) {
        std::copy_n(key(h, from), dim_, key(h, to));
        std::copy_n(value(h, from), dim_, value(h, to));
        marks_[h * stride_ + to] = marks_[h * stride_ + from];
      }
      ++to;
    }
    Check(h == 0 || to == left, "every head keeps as many slots", to, left);
    left = to;
  }
  count_ = left;
}

void ForEachHead(WorkerPool* const workers, const int64_t heads, const std::function<void(int64_t)>& work) {
  if (workers != nullptr) return workers->ParallelFor(heads, work);
  for (int64_t h = 0; h < heads; ++h) work(h);
}

}  // namespace invar::cache
