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
  batch_.clear();
  results_.clear();
  drafted_.clear();
  size_t uncertain = 0;
  for (const Span& span : spans) uncertain += static_cast<size_t>(span.drafted > 0 ? span.length : 0);
  drafted_.reserve(uncertain);  // Before views of it are taken below.
  const models::ModelSpec& spec = model_->spec();
  int64_t rows = 0;
  int64_t logged = 0;
  bool host_reads = backend_ == nullptr || backend_->chooser() == nullptr;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    const Sequence& sequence = *work[i].sequence;
    const cache::PrefixLease& lease = sequence.lease();
    Check(sequence.id() == span.sequence && sequence.computed() == span.first, "a span continues its sequence",
          span.first, sequence.computed());
    std::span<std::byte> log;
    if (span.drafted > 0 && spec.state_bytes > 0) {
      const int64_t bytes = spec.StateLogBytes(span.length);
      Check(logged + bytes <= log_bytes_, "the logs of a step fit their memory", logged, bytes, log_bytes_);
      log = {logs_.get() + logged, static_cast<size_t>(bytes)};
      logged += bytes;
    }
    std::span<const models::ViewLayer> view;
    models::QueryObserver* observer = nullptr;
    if (ServedView* const served = work[i].sequence->view(); served != nullptr) {
      view = served->At(Position(span.first));
      observer = served->ObserverOf(span.first, span.first + span.length);
    }
    const int32_t there = view.empty() ? std::min(lease.match().kv_tokens, span.first + span.length) : 0;
    LiveExport* const live = work[i].sequence->live_export();
    if (live != nullptr) {
      live->Begin(PlaceOf(memory, lease),
                  {.first = span.first, .there = std::max(there, span.first), .end = span.first + span.length});
    }
    batch_.push_back({.tokens = TokensOf(sequence, span),
                      .first = Position(span.first),
                      .pages = lease.pages().ids(),
                      .state = lease.slot(),
                      .logits_rows = span.logits_rows,
                      .checkpoints = work[i].checkpoints,
                      .kv_from = Position(there),
                      .view = view,
                      .away = sequence.round().stream.get(),
                      .away_pages = sequence.away_pages(),
                      .observer = observer,
                      .layer_observer = live,
                      .state_log = log});
    rows += span.logits_rows;
    host_reads |= span.first < sequence.prompt_tokens() && sequence.request().output.prompt_logprobs.has_value();
  }
  const models::SequenceMemory at = MemoryIn(memory);
  const kernels::ConstF32View logits = host_reads ? model_->Forward(at, batch_) : model_->StartForward(at, batch_);
  Check(logits.rows == rows, "the model gives the rows asked for", logits.rows, rows);
  int64_t row = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    results_.push_back({spans[i], logits.Rows(row, spans[i].logits_rows), batch_[i].state_log});
    row += spans[i].logits_rows;
  }
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
