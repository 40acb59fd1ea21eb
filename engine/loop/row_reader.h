// RowReader: what the logits of a step mean for their sequences: scores of prompt tokens, the next token, how much of a
// draft was right. A sequence's rows are read with nothing but its own state.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/worker_pool.h"
#include "engine/loop/chosen_rows.h"
#include "engine/loop/live_sequences.h"
#include "engine/loop/sampled_rows.h"
#include "engine/loop/sequence.h"
#include "engine/schedule/step.h"
#include "engine/speculate/speculator.h"
#include "engine/stats.h"
#include "kernels/row_chooser.h"
#include "kernels/sample.h"

namespace invar::engine {

// What reading its logits did to a sequence; kLost: they are not its logits, and were not read.
enum class End { kGoesOn, kFinished, kNotFinite, kLost };
struct Outcome {
  int32_t rows = 0;  // Of the span, those whose tokens are certain.
  End end = End::kGoesOn;
};

class RowReader {
 public:
  // `rows`: chooses tokens that `chooser`, null where logits are the host's, does not, on the threads of `pool`, null
  // where there is none. `usable_ids`: ids at or above it are never sampled. Requires: references outlive this.
  RowReader(const kernels::RowSampler& rows, kernels::RowChooser* const chooser, WorkerPool* const pool,
            const int32_t usable_ids, LiveSequences& live, Speculator& speculator, const Clock& clock,
            EngineStats& stats)
      : rows_(rows),
        usable_ids_(usable_ids),
        live_(live),
        speculator_(speculator),
        clock_(clock),
        stats_(stats),
        chooser_(chooser),
        chosen_(chooser, usable_ids),
        sampled_(rows, pool, usable_ids) {}

  // Before the results of a step are read: `of[i]` ran `results[i]`.
  void Begin(const std::span<const SpanResult> results, const std::span<const Sequence* const> of) {
    if (chooser_ != nullptr) return chosen_.Choose(results, of);
    sampled_.Begin(results, of);
  }
  // Effects: advances the sequence over what is certain of the span, pushes what it sampled, drops its draft. Whoever
  // has ended is still alive: ending it is for the caller.
  Outcome Read(Sequence& sequence, const SpanResult& result);

 private:
  Outcome SampleRows(Sequence& sequence, const SpanResult& result);
  bool ScorePrompt(Sequence& sequence, const SpanResult& result);
  SampledRow SampledOf(const Sequence& sequence, const SpanResult& result, int32_t right);
  End SampleNext(Sequence& sequence, const SpanResult& result, int32_t right);

  // Set at construction.
  const kernels::RowSampler& rows_;
  const int32_t usable_ids_;
  LiveSequences& live_;
  Speculator& speculator_;
  const Clock& clock_;
  EngineStats& stats_;
  kernels::RowChooser* const chooser_;

  ChosenRows chosen_;
  SampledRows sampled_;
};

}  // namespace invar::engine
