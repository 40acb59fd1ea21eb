// The batch is built in the order of the spans; logits rows come back in it too.
#include "engine/runner.h"

#include <utility>

#include "base/check.h"

namespace invar::engine {

Runner::Runner(std::unique_ptr<models::Model> model, const cache::PagePool& pages, const cache::SlotPool& slots)
    : model_(std::move(model)), pages_(pages), slots_(slots) {}

std::span<const SpanResult> Runner::Run(const std::span<const Span> spans, const std::span<Sequence* const> sequences) {
  batch_.clear();
  results_.clear();
  int64_t rows = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    const Sequence& sequence = *sequences[i];
    Check(sequence.id() == span.sequence && sequence.computed() == span.first, "a span continues its sequence",
          span.first, sequence.computed());
    batch_.push_back({.tokens = std::span(sequence.tokens()).subspan(span.first, span.length),
                      .first = Position(span.first),
                      .pages = sequence.pages().ids(),
                      .state = sequence.slot()->id(),
                      .logits_rows = span.logits_rows});
    rows += span.logits_rows;
  }
  const kernels::ConstF32View logits = model_->Forward({.pages = pages_.arena(), .states = slots_.arena()}, batch_);
  Check(logits.rows == rows, "the model gives the rows asked for", logits.rows, rows);
  int64_t row = 0;
  for (const Span& span : spans) {
    results_.push_back({span, logits.Rows(row, span.logits_rows)});
    row += span.logits_rows;
  }
  return results_;
}

}  // namespace invar::engine
