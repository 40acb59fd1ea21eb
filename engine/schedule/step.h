// Step: what runs now. The only words between the scheduler, which decides, and the runner, which computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/tensor.h"

namespace invar::engine {

// Tokens [first, first + length) of one sequence go through the model. Prefill chunks, decode tokens and drafts to be
// verified are one thing.
struct Span {
  SequenceId sequence;
  int32_t first = 0;
  int32_t length = 0;
  int32_t logits_rows = 0;  // Of the span's last tokens.
  int32_t drafted = 0;      // So many of its last tokens are the sequence's draft: not certain yet.

  bool operator==(const Span&) const = default;
};

// Applied in this order: `preempt` give up their memory, `admit` get a slot, then the spans run as one batch.
struct Step {
  std::vector<SequenceId> preempt;
  std::vector<SequenceId> admit;
  std::vector<Span> spans;

  bool empty() const { return preempt.empty() && admit.empty() && spans.empty(); }
};

// What came out of one span: its wanted logits rows [logits_rows, vocabulary], valid until the next forward.
struct SpanResult {
  // The row behind `right` tokens of the span's draft, that what comes next is sampled from.
  const float* row_behind(const int32_t right) const {
    return logits.row(static_cast<int64_t>(logits.rows) - 1 - span.drafted + right);
  }

  Span span;
  kernels::ConstF32View logits;
  std::span<const std::byte> state_log = {};  // Of a span with a draft on a model with recurrent states.
};

}  // namespace invar::engine
