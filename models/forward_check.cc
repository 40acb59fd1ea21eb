// Costs a few comparisons a span, and nothing more where nobody asks for checkpoints.
#include "models/forward_check.h"

#include "base/check.h"
#include "kernels/numerics.h"

namespace invar::models {
namespace {

void CheckView(const ModelSpec& spec, const ForwardSpan& span) {
  Check(static_cast<int32_t>(span.view.size()) == spec.attention_layers, "a view has all attention layers",
        span.view.size());
  Check(spec.attention.shape.window == 0, "a view is of layers that see everything", spec.attention.shape.window);
  Check(span.kv_from.value() == 0, "a view's rows are written", span.kv_from);
  for (const ViewLayer& layer : span.view) {
    const int64_t behind = layer.slots - int64_t{kernels::kPageTokens} * layer.body.pages;
    const auto room = static_cast<int64_t>(span.pages.size()) * kernels::kPageTokens;
    Check(behind >= 0, "a view's slots hold those of its body", layer.slots, layer.body.pages);
    Check(behind + static_cast<int64_t>(span.tokens.size()) <= room, "pages cover the span's slots", behind, room);
  }
}

void CheckSpan(const ModelSpec& spec, const ForwardSpan& span) {
  const auto rows = static_cast<int64_t>(span.tokens.size());
  const int64_t end = span.first.value() + rows;
  Check(rows > 0 && span.first.value() >= 0 && end <= spec.max_sequence_tokens,
        "a span lies inside the model's positions", span.first, rows);
  if (span.view.empty()) {
    Check(static_cast<int64_t>(span.pages.size()) * kernels::kPageTokens >= end || spec.attention_layers == 0,
          "pages cover the span", span.pages.size(), end);
  } else {
    CheckView(spec, span);
  }
  Check(span.logits_rows >= 0 && span.logits_rows <= rows, "logits are wanted of the span's own rows",
        span.logits_rows);
  Check(span.kv_from.value() <= end, "KV is there up to the span's end at most", span.kv_from, end);
  Position before = span.first;
  for (const StateCopy& copy : span.checkpoints) {
    Check(copy.after > before && copy.after.value() <= end, "checkpoints ascend inside their span", copy.after,
          span.first, end);
    before = copy.after;
  }
}

// Two writers of one slot, or a writer beside a reader, would leave what depends on the order of work.
void CheckOwnSlots(const std::span<const ForwardSpan> spans) {
  for (size_t i = 0; i < spans.size(); ++i) {
    for (size_t c = 0; c < spans[i].checkpoints.size(); ++c) {
      const SlotId to = spans[i].checkpoints[c].to;
      for (size_t j = 0; j < spans.size(); ++j) {
        Check(spans[j].state != to, "a checkpoint's slot is no running sequence's", to);
        const size_t others = j < i ? spans[j].checkpoints.size() : j == i ? c : 0;
        for (size_t d = 0; d < others; ++d) {
          Check(spans[j].checkpoints[d].to != to, "a slot takes one checkpoint of a forward", to);
        }
      }
    }
  }
}

}  // namespace

void CheckSpans(const ModelSpec& spec, const std::span<const ForwardSpan> spans) {
  for (const ForwardSpan& span : spans) CheckSpan(spec, span);
  if (spec.state_bytes > 0) CheckOwnSlots(spans);
}

}  // namespace invar::models
