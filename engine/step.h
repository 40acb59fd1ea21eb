// Step: what runs now. The only words between the scheduler, which decides, and the runner, which computes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kernels/tensor.h"

namespace invar::engine {

// Tokens [first, first + length) of one sequence go through the model. Prefill chunks and decode tokens are one thing.
struct Span {
  SequenceId sequence;
  int32_t first = 0;
  int32_t length = 0;
  int32_t logits_rows = 0;  // Of the span's last tokens.

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
  Span span;
  kernels::ConstF32View logits;
};

}  // namespace invar::engine
