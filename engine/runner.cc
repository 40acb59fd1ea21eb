// The batch is built in the order of the spans; logits rows come back in it too.
#include "engine/runner.h"

#include <algorithm>

#include "base/check.h"

namespace invar::engine {

std::span<const SpanResult> Runner::Run(const cache::CacheMemory& memory, const std::span<const Span> spans,
                                        const std::span<const SpanWork> work) {
  batch_.clear();
  results_.clear();
  int64_t rows = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    const Sequence& sequence = *work[i].sequence;
    const cache::PrefixLease& lease = sequence.lease();
    Check(sequence.id() == span.sequence && sequence.computed() == span.first, "a span continues its sequence",
          span.first, sequence.computed());
    batch_.push_back({.tokens = std::span(sequence.tokens()).subspan(span.first, span.length),
                      .first = Position(span.first),
                      .pages = lease.pages().ids(),
                      .state = lease.slot(),
                      .logits_rows = span.logits_rows,
                      .checkpoints = work[i].checkpoints,
                      .kv_from = Position(std::min(lease.match().kv_tokens, span.first + span.length))});
    rows += span.logits_rows;
  }
  const kernels::ConstF32View logits =
      model_->Forward({.pages = memory.pages().arena(), .states = memory.slots().arena()}, batch_);
  Check(logits.rows == rows, "the model gives the rows asked for", logits.rows, rows);
  int64_t row = 0;
  for (const Span& span : spans) {
    results_.push_back({span, logits.Rows(row, span.logits_rows)});
    row += span.logits_rows;
  }
  return results_;
}

}  // namespace invar::engine
