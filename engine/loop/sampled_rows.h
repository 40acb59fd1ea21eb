// SampledRows: tokens of a step's rows that the host samples, spread over the compute threads. A row's token depends on
// its logits, its request, its sequence's tokens and its position alone, so who samples it, and beside what, changes
// nothing. Rows behind known tokens come first, all in one fork; those behind drafts follow when reading comes to them,
// a row a thread at a time, since behind a wrong token none is wanted.
// Threads: engine thread only; forks onto the pool.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/worker_pool.h"
#include "engine/loop/sequence.h"
#include "engine/request.h"
#include "engine/schedule/step.h"
#include "kernels/sample.h"

namespace invar::engine {

struct SampledRow {
  std::optional<TokenId> token = {};         // None: a logit of a usable id is not finite.
  std::optional<TokenLogprob> logprob = {};  // None: not wanted, or not finite.
};

class SampledRows {
 public:
  // `pool` null: the engine thread samples all. `usable_ids`: ids at or above it are never sampled. Requires: both
  // references outlive this.
  SampledRows(const kernels::RowSampler& rows, WorkerPool* const pool, const int32_t usable_ids)
      : rows_(rows), pool_(pool), usable_ids_(usable_ids) {}

  // Of one step, before any of its rows is read: `of[i]` ran `results[i]`.
  void Begin(std::span<const SpanResult> results, std::span<const Sequence* const> of);
  // Of the row behind `right` tokens of the draft, all of which the sequence has taken; each is taken once. Effects:
  // samples where that has not been done.
  SampledRow Take(const Sequence& sequence, const SpanResult& result, int32_t right);

 private:
  // Behind `ahead` tokens more than its sequence has yet.
  struct Row {
    const Sequence* sequence = nullptr;
    std::span<const float> logits;
    int32_t ahead = 0;
    SampledRow sampled = {};
  };
  // Rows from that behind `right` tokens of the draft on, at most `count`, for SampleAll.
  void Add(const Sequence& sequence, const SpanResult& result, int32_t right, int32_t count,
           std::vector<Row>& to) const;
  void SampleAll(std::vector<Row>& rows);
  void SampleOne(Row& row) const;
  int32_t threads() const { return pool_ == nullptr ? 1 : pool_->threads(); }

  // Set at construction.
  const kernels::RowSampler& rows_;
  WorkerPool* const pool_;
  const int32_t usable_ids_;

  // Kept between steps for their memory; rows by their logits, ascending.
  std::vector<Row> first_;   // Of all sequences of the step.
  std::vector<Row> behind_;  // Later ones, of the sequence that is being read.
};

}  // namespace invar::engine
