// One request's output. The lock covers the queue only; engine and writer are called without it.
#include "server/calls/token_stream.h"

#include <utility>

namespace invar::server {
namespace {

// What an event costs while it waits beside what it holds: itself and its place in the queue.
constexpr int64_t kEventBytes = sizeof(engine::TokenEvent) + 16;

int64_t BytesOf(const std::vector<engine::TokenLogprob>& logprobs) {
  int64_t bytes = 0;
  for (const engine::TokenLogprob& logprob : logprobs) {
    bytes += static_cast<int64_t>(sizeof(logprob) + logprob.top.size() * sizeof(engine::TokenAlternative));
  }
  return bytes;
}

int64_t BytesOf(const engine::TokenEvent& event) {
  if (const auto* delta = std::get_if<engine::DeltaEvent>(&event)) {
    return kEventBytes + static_cast<int64_t>(delta->text.size() + delta->tokens.size() * sizeof(TokenId)) +
           BytesOf(delta->logprobs);
  }
  if (const auto* finished = std::get_if<engine::FinishedEvent>(&event)) {
    return kEventBytes + static_cast<int64_t>(finished->text_tail.size()) + BytesOf(finished->prompt_logprobs);
  }
  return kEventBytes;
}

bool IsEmpty(const v1::Delta& delta) {
  return delta.text().empty() && delta.token_ids_size() == 0 && delta.logprobs_size() == 0;
}

}  // namespace

TokenStream::TokenStream(Options options, MessageWriter& writer, engine::Engine& engine, TurnQueue& writers,
                         Metrics& metrics, const Clock& clock)
    : options_(std::move(options)),
      writer_(writer),
      engine_(engine),
      writers_(writers),
      metrics_(metrics),
      clock_(clock) {}

void TokenStream::SetId(const SequenceId id) {
  bool cancel = false, unpause = false;
  {
    MutexLock lock(mu_);
    id_ = id;
    cancel = std::exchange(cancel_wanted_, false);
    unpause = std::exchange(unpause_wanted_, false);
  }
  if (cancel) engine_.Cancel(id);
  if (unpause) engine_.Unpause(id);
}

bool TokenStream::Push(engine::TokenEvent event) {
  Record(event);
  bool keep_up = true;
  {
    MutexLock lock(mu_);
    Summarize(event);
    if (finished_ || cut_) return true;
    const auto* failed = std::get_if<engine::FailedEvent>(&event);
    if (failed != nullptr && writing_) {
      // The reader has not taken what is in flight: nothing more is queued behind it, the status follows it directly.
      cut_ = failed->status;
      pending_.clear();
    } else {
      pending_bytes_ += BytesOf(event);
      pending_.push_back(std::move(event));
      keep_up = pending_bytes_ <= options_.pending_bytes_max;
      if (!keep_up) paused_ = true;
      if (writing_) return keep_up;  // OnWriteDone asks.
    }
  }
  AskForTurn();
  return keep_up;
}

void TokenStream::OnWriteDone(const bool ok) {
  bool go = false;
  {
    MutexLock lock(mu_);
    writing_ = false;
    go = !finished_;
  }
  if (!ok) OnReaderGone();
  // Asked for, not done here: one thread alone calls the writer, so that no Finish overtakes a Write.
  if (go) AskForTurn();
}

void TokenStream::CutStalledReader(const TimeNs limit) {
  {
    MutexLock lock(mu_);
    if (finished_ || cut_ || !writing_ || clock_.Now() - write_began_ < limit) return;
    cut_ = Status(StatusCode::kAborted, "the reader of this stream has stalled for too long");
    pending_.clear();
  }
  OnReaderGone();
  AskForTurn();
}

void TokenStream::OnReaderGone() {
  std::optional<SequenceId> id;
  {
    MutexLock lock(mu_);
    reader_gone_ = true;
    id = id_;
    if (!id) cancel_wanted_ = true;
  }
  if (id) engine_.Cancel(*id);
}

void TokenStream::TakeTurn() {
  bool write = false;
  std::optional<Status> end;
  std::optional<SequenceId> unpause;
  {
    MutexLock lock(mu_);
    if (finished_ || (writing_ && !cut_)) return;
    write = !cut_ && TakeMessage();
    if (write) {
      writing_ = true;
      write_began_ = clock_.Now();
    } else if (cut_ || status_) {
      end = cut_ ? std::move(cut_) : std::move(status_);
      finished_ = true;
    }
    if (paused_ && !finished_ && pending_bytes_ <= options_.pending_bytes_max / 2) {
      paused_ = false;
      unpause = id_;
      if (!id_) unpause_wanted_ = true;
    }
  }
  if (unpause) engine_.Unpause(*unpause);
  if (write) writer_.Write(&message_);
  if (end) writer_.Finish(*end);
}

bool TokenStream::TakeMessage() {
  while (!pending_.empty()) {
    message_.Clear();
    const engine::TokenEvent& next = pending_.front();
    if (const auto* failed = std::get_if<engine::FailedEvent>(&next)) {
      status_ = failed->status;
      pending_.clear();
      return false;
    }
    if (const auto* started = std::get_if<engine::StartedEvent>(&next)) {
      message_ = StartedMessage(options_.form, *started);
      pending_bytes_ -= BytesOf(next);
      pending_.pop_front();
    } else if (std::holds_alternative<engine::DeltaEvent>(next)) {
      TakeDeltas();
    } else {
      TakeFinished();
    }
    if (!reader_gone_ && message_.event_case() != v1::GenerateResponse::EVENT_NOT_SET) return true;
  }
  return false;
}

// All deltas that wait, as one.
void TokenStream::TakeDeltas() {
  v1::Delta delta;
  while (!pending_.empty()) {
    const auto* event = std::get_if<engine::DeltaEvent>(&pending_.front());
    if (event == nullptr) break;
    AppendDelta(options_.form, *event, options_.form.stream ? delta : whole_);
    pending_bytes_ -= BytesOf(pending_.front());
    pending_.pop_front();
  }
  if (!IsEmpty(delta)) *message_.mutable_delta() = std::move(delta);
}

// The text that the end released goes out first, as a delta of its own; the Finished stays queued behind it.
void TokenStream::TakeFinished() {
  auto& event = std::get<engine::FinishedEvent>(pending_.front());
  const std::string tail = std::exchange(event.text_tail, {});
  if (options_.form.stream && !tail.empty()) {
    message_.mutable_delta()->set_text(tail);
    return;
  }
  v1::Finished& finished = *message_.mutable_finished();
  FillFinished(options_.form, event, finished);
  if (!options_.form.stream) {
    finished.set_text(whole_.text() + tail);
    finished.mutable_token_ids()->Swap(whole_.mutable_token_ids());
    finished.mutable_logprobs()->Swap(whole_.mutable_logprobs());
  }
  pending_.clear();
  status_ = OkStatus();
}

void TokenStream::Summarize(const engine::TokenEvent& event) {
  if (const auto* delta = std::get_if<engine::DeltaEvent>(&event)) {
    summary_.output_tokens += static_cast<int64_t>(delta->tokens.size());
  } else if (const auto* finished = std::get_if<engine::FinishedEvent>(&event)) {
    summary_.finished = {.reason = finished->reason,
                         .cached_tokens = finished->cached_tokens,
                         .preemptions = finished->preemptions,
                         .queued_for = finished->queued_for,
                         .prefill_for = finished->prefill_for,
                         .decode_for = finished->decode_for,
                         .first_token_after = finished->first_token_after};
  }
}

RequestSummary TokenStream::summary() {
  MutexLock lock(mu_);
  return summary_;
}

// Engine thread. Latencies are taken where tokens leave the engine: a slow reader does not colour them.
void TokenStream::Record(const engine::TokenEvent& event) {
  if (const auto* delta = std::get_if<engine::DeltaEvent>(&event)) {
    if (delta->tokens.empty()) return;
    const TimeNs now = clock_.Now();
    if (last_token_ == 0) {
      metrics_.Observe(Sample::kFirstToken, ToSeconds(now - options_.arrived));
    } else {
      metrics_.Observe(Sample::kInterToken, ToSeconds(now - last_token_));
    }
    last_token_ = now;
  } else if (const auto* finished = std::get_if<engine::FinishedEvent>(&event)) {
    metrics_.Observe(Sample::kRequest, ToSeconds(clock_.Now() - options_.arrived));
    metrics_.Observe(Sample::kQueue, ToSeconds(finished->queued_for));
    metrics_.Observe(Sample::kPrefill, ToSeconds(finished->prefill_for));
    metrics_.Observe(Sample::kDecode, ToSeconds(finished->decode_for));
    metrics_.Observe(Sample::kPromptTokens, finished->prompt_tokens);
    metrics_.Observe(Sample::kGeneratedTokens, finished->completion_tokens);
    if (finished->completion_tokens > 1) {
      metrics_.Observe(Sample::kTimePerToken, ToSeconds(finished->decode_for) / (finished->completion_tokens - 1));
    }
  }
}

}  // namespace invar::server
