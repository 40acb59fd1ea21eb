// The batch is built in the order of the spans; logits rows come back in it too.
#include "engine/loop/runner.h"

#include <algorithm>

#include "base/check.h"
#include "engine/loop/bind_model.h"

namespace invar::engine {

Runner::Runner(std::unique_ptr<models::Model> model, const int64_t log_bytes)
    : model_(std::move(model)),
      backend_(model_->backend()),
      log_bytes_(log_bytes),
      logs_(models::MakeStateLogMemory(log_bytes)) {}

std::span<const SpanResult> Runner::Run(const cache::CacheMemory& memory, const std::span<const Span> spans,
                                        const std::span<const SpanWork> work) {
  Begin(spans);
  bool host_reads = backend_ == nullptr || backend_->chooser() == nullptr;
  for (size_t i = 0; i < spans.size(); ++i) {
    batch_.push_back(Bind(memory, spans[i], work[i]));
    const Sequence& sequence = *work[i].sequence;
    const bool is_scored = sequence.request().output.prompt_logprobs.has_value();
    host_reads |= is_scored && spans[i].first < sequence.prompt_tokens();
  }
  const models::SequenceMemory at = MemoryIn(memory);
  return ResultsOf(spans, host_reads ? model_->Forward(at, batch_) : model_->StartForward(at, batch_));
}

void Runner::Begin(const std::span<const Span> spans) {
  batch_.clear();
  results_.clear();
  drafted_.clear();
  logged_bytes_ = 0;
  size_t uncertain = 0;
  for (const Span& span : spans) uncertain += static_cast<size_t>(span.drafted > 0 ? span.length : 0);
  drafted_.reserve(uncertain);  // Before views of it are taken.
}

// A span in the model's words: where its sequence's memory lies, what it reads instead of it, who looks on.
models::ForwardSpan Runner::Bind(const cache::CacheMemory& memory, const Span& span, const SpanWork& work) {
  Sequence& sequence = *work.sequence;
  const int32_t end = span.first + span.length;
  Check(sequence.id() == span.sequence && sequence.computed() == span.first, "a span continues its sequence",
        span.first, sequence.computed());
  const cache::PrefixLease& lease = sequence.lease();
  models::ForwardSpan bound{.tokens = TokensOf(sequence, span),
                            .first = Position(span.first),
                            .pages = lease.pages().ids(),
                            .state = lease.slot(),
                            .logits_rows = span.logits_rows,
                            .checkpoints = work.checkpoints,
                            .away = sequence.round().stream.get(),
                            .away_pages = sequence.away_pages(),
                            .state_log = LogFor(span)};
  if (ServedView* const served = sequence.view(); served != nullptr) {
    bound.view = served->At(bound.first);
    bound.observer = served->ObserverOf(span.first, end);
  }
  const int32_t there = bound.view.empty() ? std::min(lease.match().kv_tokens, end) : 0;
  bound.kv_from = Position(there);
  if (LiveExport* const live = sequence.live_export(); live != nullptr) {
    live->Begin(PlaceOf(memory, lease), {.first = span.first, .there = std::max(there, span.first), .end = end});
    bound.layer_observer = live;
  }
  return bound;
}

// Empty where all of it is certain.
std::span<std::byte> Runner::LogFor(const Span& span) {
  const models::ModelSpec& spec = model_->spec();
  if (span.drafted == 0 || spec.state_bytes == 0) return {};
  const int64_t bytes = spec.StateLogBytes(span.length);
  Check(logged_bytes_ + bytes <= log_bytes_, "the logs of a step fit their memory", logged_bytes_, bytes, log_bytes_);
  const std::span<std::byte> log(logs_.get() + logged_bytes_, static_cast<size_t>(bytes));
  logged_bytes_ += bytes;
  return log;
}

std::span<const SpanResult> Runner::ResultsOf(const std::span<const Span> spans, const kernels::ConstF32View& logits) {
  int64_t row = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    results_.push_back({spans[i], logits.Rows(row, spans[i].logits_rows), batch_[i].state_log});
    row += spans[i].logits_rows;
  }
  Check(logits.rows == row, "the model gives the rows asked for", logits.rows, row);
  return results_;
}

std::span<const TokenId> Runner::TokensOf(const Sequence& sequence, const Span& span) {
  if (span.drafted == 0) return std::span(sequence.tokens()).subspan(span.first, span.length);
  const size_t begin = drafted_.size();
  const auto known = sequence.tokens().begin() + span.first;
  drafted_.insert(drafted_.end(), known, known + (span.length - span.drafted));
  const std::span<const TokenId> draft = sequence.draft().first(static_cast<size_t>(span.drafted));
  drafted_.insert(drafted_.end(), draft.begin(), draft.end());
  return std::span(drafted_).subspan(begin);
}

void Runner::Await() {
  if (backend_ != nullptr) backend_->Wait();
}

void Runner::Settle(const cache::CacheMemory& memory, const std::span<const SpanWork> work) {
  advances_.clear();
  for (size_t i = 0; i < work.size(); ++i) {
    if (results_[i].state_log.empty() || work[i].certain == 0) continue;
    advances_.push_back({.state = work[i].sequence->lease().slot(),
                         .first = Position(results_[i].span.first),
                         .log = results_[i].state_log,
                         .rows = work[i].certain,
                         .checkpoints = work[i].checkpoints});
  }
  if (advances_.empty()) return;
  model_->Advance(MemoryIn(memory), advances_);
}

}  // namespace invar::engine
