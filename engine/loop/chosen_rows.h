// ChosenRows: tokens of a step's rows that the backend chose where the logits lie (kernels/row_chooser.h), all in one
// call, so that the host need not read them. A row behind a draft is chosen as if the draft were right that far: read
// only where it was, as decoding would choose it.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/loop/sequence.h"
#include "engine/request.h"
#include "engine/schedule/step.h"
#include "kernels/row_chooser.h"

namespace invar::engine {

class ChosenRows {
 public:
  // `chooser` null: nothing is ever chosen here. `usable_ids`: ids at or above it are never chosen.
  ChosenRows(kernels::RowChooser* chooser, const int32_t usable_ids) : chooser_(chooser), usable_ids_(usable_ids) {}

  // Of one step, before any of its rows is read: `of[i]` ran `results[i]`.
  void Choose(std::span<const SpanResult> results, std::span<const Sequence* const> of);
  // Null: it was not chosen here. Valid until the next Choose.
  const kernels::ChosenRow* Find(const float* row) const;

 private:
  void Add(const SpanResult& result, const Sequence& sequence);

  kernels::RowChooser* const chooser_;
  const int32_t usable_ids_;
  std::vector<kernels::RowChoice> choices_;
  std::vector<kernels::ChosenRow> chosen_;
};

// As MakeLogprob says of a row that the host reads.
std::optional<TokenLogprob> LogprobOf(const kernels::ChosenRow& row);

}  // namespace invar::engine
