// ArrivedView: what a sequence drafts on whose full KV is elsewhere: a compressed view of its prefix that was made
// there, behind which the model runs here. Nothing that is computed on it is ever more than a guess.
//
//   view          [0, end)      bodies, as they came
//   known tokens  [end, run)    run on the view here: their rows are its tail, and move the state
//   a draft       [run, ...)    rows behind the tail, a state of its own; the next draft begins anew
//
// Forward by forward: who drafts for it calls GoOn between steps of others.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cache/cache_memory.h"
#include "engine/compressed/compressed_kv.h"
#include "engine/prefix_view.h"
#include "engine/sample/draft_sampler.h"
#include "models/model.h"

namespace invar::engine {

class ArrivedView {
 public:
  // Null: there is no memory for it in `own`. `rows_max`: of a forward. Requires: `model` and `own` outlive it.
  static std::unique_ptr<ArrivedView> Make(models::Model& model, cache::CacheMemory& own, int32_t rows_max,
                                           const WantedView& wish, ImportedView view);

  // One forward: of known tokens that have not run, or of the draft's last guess. Then `draft` has one guess more, or
  // it was about known tokens alone. False: the draft goes no further. Requires: `known` only grows; `draft` is empty,
  // or what the last calls with the same `known` left; it is not over.
  bool GoOn(std::span<const TokenId> known, DraftSampler& sampler, std::vector<TokenId>& draft);

  // There is no memory to go on.
  bool is_over() const { return is_over_; }
  // Of `own`.
  int64_t bytes() const;

 private:
  ArrivedView(models::Model& model, cache::CacheMemory& own, int32_t rows_max, const WantedView& wish);
  bool TakeMemory(ImportedView view);
  bool TakeRoom(int64_t rows);
  PageRows Tail() const { return {own_.pages().arena(), tail_ids_}; }
  kernels::ConstF32View Forward(std::span<const TokenId> tokens, int32_t first,
                                const std::optional<cache::SlotRef>& state, int32_t logits_rows);
  void Settle();
  bool End() {
    is_over_ = true;
    return false;
  }

  // Set at construction.
  models::Model& model_;
  cache::CacheMemory& own_;
  const int32_t rows_max_;
  const std::unique_ptr<cache::Compressor> compressor_;

  CompressedKv kv_;
  std::optional<cache::ByteClaim> bodies_;
  std::optional<cache::SlotRef> state_;  // After run_ tokens; none of models without states.
  std::optional<cache::SlotRef> draft_state_;
  std::vector<cache::PageRef> tail_;
  std::vector<PageId> tail_ids_;
  int32_t run_ = 0;
  int32_t settled_ = 0;
  bool is_over_ = false;
};

}  // namespace invar::engine
