// Costs a few comparisons a span, and nothing more where nobody asks for checkpoints.
#include "models/stack/forward_check.h"

#include <cstdint>
#include <iterator>

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

// Positions of the span's pages begin behind what is away.
void CheckAway(const ModelSpec& spec, const ForwardSpan& span) {
  Check(span.view.empty() && spec.attention.shape.window == 0, "full KV that is away is all seen", span.away_pages);
  const int64_t away = int64_t{kernels::kPageTokens} * span.away_pages;
  Check(span.away_pages > 0 && away <= span.first.value(), "what is away lies before the span", span.away_pages,
        span.first);
  Check(span.kv_from.value() <= span.first.value(), "a span behind what is away writes its rows", span.kv_from);
}

void CheckCopies(const Position first, const int64_t end, const std::span<const StateCopy> checkpoints) {
  Position before = first;
  for (const StateCopy& copy : checkpoints) {
    Check(copy.after > before && copy.after.value() <= end, "checkpoints ascend inside their span", copy.after, first,
          end);
    before = copy.after;
  }
}

void CheckLog(const ModelSpec& spec, const std::span<const std::byte> log, const int64_t rows) {
  const int64_t bytes = spec.StateLogBytes(rows);
  Check(static_cast<int64_t>(log.size()) >= bytes, "a state log has room for its rows", log.size(), bytes);
  Check(reinterpret_cast<uintptr_t>(log.data()) % kStateLogAlignment == 0, "a state log is aligned");
}

void CheckSpan(const ModelSpec& spec, const ForwardSpan& span) {
  const auto rows = static_cast<int64_t>(span.tokens.size());
  const int64_t end = span.first.value() + rows;
  Check(rows > 0 && span.first.value() >= 0 && end <= spec.max_sequence_tokens,
        "a span lies inside the model's positions", span.first, rows);
  if (span.away != nullptr) CheckAway(spec, span);
  Check(span.away != nullptr || span.away_pages == 0, "pages that are away come from somewhere", span.away_pages);
  if (span.view.empty()) {
    const int64_t covered = (static_cast<int64_t>(span.pages.size()) + span.away_pages) * kernels::kPageTokens;
    Check(covered >= end || spec.attention_layers == 0, "pages cover the span", covered, end);
  } else {
    CheckView(spec, span);
  }
  Check(span.logits_rows >= 0 && span.logits_rows <= rows, "logits are wanted of the span's own rows",
        span.logits_rows);
  Check(span.kv_from.value() <= end, "KV is there up to the span's end at most", span.kv_from, end);
  CheckCopies(span.first, end, span.checkpoints);
  if (span.state_log.empty()) return;
  Check(span.checkpoints.empty(), "a state that is only logged has no checkpoints", span.checkpoints.size());
  CheckLog(spec, span.state_log, rows);
}

// Two writers of one slot, or a writer beside a reader, would leave what depends on the order of work.
template <typename Work>
void CheckOwnSlots(const std::span<const Work> spans) {
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
  if (spec.state_bytes > 0) CheckOwnSlots<ForwardSpan>(spans);
}

void CheckPart(const ModelSpec& spec, const ForwardSpan& span, const StackPart& part) {
  const auto layers = static_cast<int32_t>(spec.layer_flops.size());
  Check(part.begin >= 0 && part.begin < part.end && part.end <= layers, "a part is of layers that there are",
        part.begin, part.end);
  Check(span.view.empty() && span.away == nullptr && span.state_log.empty() && span.checkpoints.empty() &&
            span.logits_rows == 0,
        "a part leaves KV and states alone");
  Check(part.residual.data == nullptr || part.inputs.data == nullptr, "a part begins with one thing");
  Check(part.inputs.data == nullptr || part.end == part.begin + 1, "a norm is of one layer", part.begin, part.end);
  const kernels::ConstF32View& given = part.inputs.data != nullptr ? part.inputs : part.residual;
  Check(given.data != nullptr || part.begin == 0, "the first layer alone reads tokens", part.begin);
  Check(given.data == nullptr || (given.rows == std::ssize(span.tokens) && given.cols == spec.hidden),
        "a part is given the rows of its span", given.rows, given.cols);
}

void CheckAdvances(const ModelSpec& spec, const std::span<const StateAdvance> advances) {
  for (size_t i = 0; i < advances.size(); ++i) {
    const StateAdvance& advance = advances[i];
    Check(advance.rows > 0, "a state goes over some rows", advance.rows);
    CheckCopies(advance.first, int64_t{advance.first.value()} + advance.rows, advance.checkpoints);
    CheckLog(spec, advance.log, advance.rows);
    for (size_t j = 0; j < i; ++j)
      Check(advances[j].state != advance.state, "a state goes over one log", advance.state);
  }
  CheckOwnSlots<StateAdvance>(advances);
}

void CheckGuesses(const ModelSpec& spec, const std::span<const GuessRow> guesses) {
  for (const GuessRow& guess : guesses) {
    const int32_t position = guess.position.value();
    Check(position >= 1 && position < spec.max_sequence_tokens, "a guess follows a token it can look back on",
          position);
    Check(static_cast<int64_t>(guess.pages.size()) * kernels::kPageTokens > position, "pages cover a guess",
          guess.pages.size(), position);
  }
}

}  // namespace invar::models
