// SettledSlots: slots of one layer's settled tokens as plain floats, which a compressor thins out in place: all of
// them, or the newest, where `before()` older ones stay as they are. [kv_heads][count] in order of tokens; what is
// dropped leaves no gap.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/worker_pool.h"
#include "cache/compressed_layer.h"

namespace invar::cache {

class SettledSlots {
 public:
  // `tokens`: the settled length. Rows and marks are to be written by the caller. `scratch`: of the rows; outlives
  // this.
  SettledSlots(const kernels::PageShape& shape, int64_t before, int64_t count, int64_t tokens,
               std::pmr::memory_resource* scratch = std::pmr::new_delete_resource());

  int64_t heads() const { return heads_; }
  int64_t dim() const { return dim_; }
  int64_t before() const { return before_; }
  int64_t count() const { return count_; }
  int64_t tokens() const { return tokens_; }

  float* key(const int64_t h, const int64_t i) { return keys_.get() + (h * stride_ + i) * dim_; }
  const float* key(const int64_t h, const int64_t i) const { return keys_.get() + (h * stride_ + i) * dim_; }
  float* value(const int64_t h, const int64_t i) { return values_.get() + (h * stride_ + i) * dim_; }
  const float* value(const int64_t h, const int64_t i) const { return values_.get() + (h * stride_ + i) * dim_; }
  std::span<SlotMark> marks(const int64_t h) { return std::span(marks_).subspan(h * stride_, count_); }
  std::span<const SlotMark> marks(const int64_t h) const { return std::span(marks_).subspan(h * stride_, count_); }
  kernels::KvRows rows() { return {keys_.get(), values_.get(), count_, stride_ * dim_, dim_}; }

  // Keeps slots whose byte is not 0, in order; keep[h * count() + i]. Requires: as many in every head.
  void Keep(std::span<const uint8_t> keep);

 private:
  struct GiveBack {
    std::pmr::memory_resource* to;
    int64_t count;
    void operator()(float* floats) const { to->deallocate(floats, static_cast<size_t>(count) * sizeof(float)); }
  };
  using Floats = std::unique_ptr<float[], GiveBack>;
  static Floats Take(std::pmr::memory_resource* from, int64_t count);

  const int64_t heads_;
  const int64_t dim_;
  const int64_t before_;
  const int64_t stride_;  // Slots from head to head: the count at the start.
  const int64_t tokens_;
  int64_t count_;
  // [kv_heads][stride][dim]
  Floats keys_;
  Floats values_;
  std::vector<SlotMark> marks_;
};

// Calls work(head) for every KV head, on the workers where there are any.
void ForEachHead(WorkerPool* workers, int64_t heads, const std::function<void(int64_t)>& work);

}  // namespace invar::cache
