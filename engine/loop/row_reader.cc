// One row after another, as decoding alone would read them.
#include "engine/loop/row_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "engine/sample/logprobs.h"
#include "engine/wants_logprob.h"

namespace invar::engine {

Outcome RowReader::Read(Sequence& sequence, const SpanResult& result) {
  const Span& span = result.span;
  stats_.prefill_tokens += std::clamp(sequence.prompt_tokens() - span.first, 0, span.length);
  stats_.last_step_tokens += span.length;
  const int32_t known = span.length - span.drafted;
  if (!ScorePrompt(sequence, result)) return {known, End::kNotFinite};
  sequence.Advance(known);
  if (sequence.state() != SequenceState::kDecode) return {known, End::kGoesOn};
  if (sequence.output_left() == 0) return {known, End::kFinished};
  return SampleRows(sequence, result);
}

// Row after row with the sequence's true state, as decoding does: the next row counts only where the token sampled from
// this one is the one it was computed with. Speculation is lossless by this loop, whatever the drafter says.
Outcome RowReader::SampleRows(Sequence& sequence, const SpanResult& result) {
  const Span& span = result.span;
  Outcome outcome{.rows = span.length - span.drafted};
  int32_t right = 0;
  int32_t sampled = 0;
  bool refuted = false;
  for (;;) {
    outcome.end = SampleNext(sequence, result, right);
    if (outcome.end != End::kNotFinite) ++sampled;
    if (outcome.end == End::kNotFinite || right == span.drafted) break;
    refuted = sequence.tokens().back() != sequence.draft()[static_cast<size_t>(right)];
    if (refuted) break;
    ++right;
    if (outcome.end != End::kGoesOn || sequence.paused()) break;
    sequence.Advance(1);
    ++outcome.rows;
  }
  speculator_.Verified(sequence, span, right, refuted, sampled);
  sequence.DropDraft();
  return outcome;
}

// The rows of a prompt's positions score the token after each. False: not finite.
bool RowReader::ScorePrompt(Sequence& sequence, const SpanResult& result) {
  const std::optional<int32_t> alternatives = sequence.request().output.prompt_logprobs;
  if (!alternatives.has_value()) return true;
  const int32_t first_row = result.span.first + result.span.length - result.span.logits_rows;
  for (int32_t r = 0; r < result.span.logits_rows && first_row + r + 1 < sequence.prompt_tokens(); ++r) {
    if (first_row + r < sequence.logits_from()) continue;
    std::optional<TokenLogprob> logprob =
        MakeLogprob(rows_, {result.logits.row(r), static_cast<size_t>(result.logits.cols)}, usable_ids_,
                    sequence.tokens()[first_row + r + 1], *alternatives);
    if (!logprob.has_value()) return false;
    sequence.AddPromptLogprob(*std::move(logprob));
  }
  return true;
}

SampledRow RowReader::SampledOf(const Sequence& sequence, const SpanResult& result, const int32_t right) {
  const kernels::ChosenRow* const chosen = chosen_.Find(result.row_behind(right));
  if (chosen == nullptr) return sampled_.Take(sequence, result, right);
  if (!chosen->finite) return {};
  Check(chosen->token >= 0, "some usable id is finite and not masked");
  SampledRow sampled{.token = TokenId(chosen->token)};
  if (WantsLogprob(sequence.request().output)) sampled.logprob = LogprobOf(*chosen);
  return sampled;
}

End RowReader::SampleNext(Sequence& sequence, const SpanResult& result, const int32_t right) {
  SampledRow sampled = SampledOf(sequence, result, right);
  const bool lacks_logprob = WantsLogprob(sequence.request().output) && !sampled.logprob.has_value();
  if (!sampled.token.has_value() || lacks_logprob) return End::kNotFinite;
  ++stats_.generated_tokens;
  if (sequence.output_tokens() == 0) ++stats_.first_tokens;
  if (sequence.view() != nullptr && sequence.view()->serves()) ++stats_.views.tokens;
  live_.Charge(sequence, 1);
  const bool ends = sequence.Accept(*sampled.token, std::move(sampled.logprob), clock_.Now());
  return ends ? End::kFinished : End::kGoesOn;
}

}  // namespace invar::engine
