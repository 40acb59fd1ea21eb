// The life of sequence.h.
#include "engine/loop/sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/numerics.h"

namespace invar::engine {
namespace {

bool IsLegal(const SequenceState from, const SequenceState to) {
  switch (from) {
    case SequenceState::kWaiting:
      return to == SequenceState::kPrefill || to == SequenceState::kEnded;
    case SequenceState::kPrefill:
      return to == SequenceState::kDecode || to == SequenceState::kWaiting || to == SequenceState::kEnded;
    case SequenceState::kDecode:
      return to == SequenceState::kWaiting || to == SequenceState::kEnded;
    case SequenceState::kEnded:
      return false;
  }
  return false;
}

}  // namespace

Sequence::Sequence(const SequenceId id, Request request, std::shared_ptr<EventSink> sink, const int32_t output_limit,
                   const models::Tokenizer* const tokenizer, std::unique_ptr<ServedView> view,
                   std::unique_ptr<LiveExport> live_export, const TimeNs now)
    : id_(id),
      request_(std::move(request)),
      sink_(std::move(sink)),
      output_limit_(output_limit),
      submitted_at_(now),
      tokens_(request_.prompt),
      view_(std::move(view)),
      live_export_(std::move(live_export)),
      stop_(request_.stopping.stop, request_.stopping.include_stop) {
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer, /*skip_special=*/true);
  if (!UsesPenalties(request_.sampling)) return;
  for (const TokenId token : tokens_) counts_.AddPrompt(token);
}

int32_t Sequence::logits_from() const {
  const int32_t last = static_cast<int32_t>(tokens_.size()) - 1;
  if (!request_.output.prompt_logprobs.has_value()) return last;
  // Row p scores prompt token p + 1.
  return std::min(last, static_cast<int32_t>(prompt_logprobs_.size()));
}

void Sequence::MoveTo(const SequenceState next) {
  Check(IsLegal(state_, next), "a legal transition of a sequence", id_, static_cast<int>(state_),
        static_cast<int>(next));
  state_ = next;
}

void Sequence::Push(TokenEvent event, const TimeNs now) {
  const bool reader_keeps_up = sink_->Push(std::move(event));
  if (!reader_keeps_up && !paused()) paused_since_ = now;
}

void Sequence::Start(const TimeNs now) {
  if (started_at_.has_value()) return;
  started_at_ = now;
  Push(StartedEvent{prompt_tokens(), reuse_}, now);
}

void Sequence::Admit(cache::PrefixLease lease, std::string made_of_codes, const TimeNs now) {
  MoveTo(SequenceState::kPrefill);
  const cache::PrefixMatch& match = lease.match();
  computed_ = match.state_tokens;
  if (!admitted_at_.has_value()) {
    admitted_at_ = now;
    reuse_.kv_match_tokens = match.kv_tokens;
    reuse_.state_match_tokens = match.state_tokens;
    reuse_.recomputed_tokens = std::max(0, match.kv_tokens - match.state_tokens);
    reuse_.computed_tokens = prompt_tokens() - match.state_tokens;
    reuse_.transfer_bytes = landed_.bytes;
    reuse_.transfer_plan = landed_.plan;
    // What was evicted again before its turn came is run here.
    reuse_.transferred_tokens = std::max(0, std::min(match.state_tokens, landed_.end) - landed_.before);
    if (reuse_.transferred_tokens > 0) {
      reuse_.tier = "peer";
      reuse_.transfer_mode = landed_.mode;
    }
    reuse_.made_of_codes = std::move(made_of_codes);
    if (reuse_.tier.empty() && match.kv_tokens > 0) reuse_.tier = "fast";
    Start(now);
  }
  lease_.emplace(std::move(lease));
}

void Sequence::Arrived(const int64_t ticket, const std::string_view tier) {
  if (ticket_ != ticket) return;
  ticket_.reset();
  if (!admitted_at_.has_value()) reuse_.tier = tier;
}

int32_t Sequence::saved_tokens() const {
  if (view_ != nullptr) return view_->saved_tokens();
  return away_pages() * kernels::kPageTokens;
}

void Sequence::Landed(const InboundPrefixes::Landed& landed) {
  if (peer_ticket_ != landed.ticket) return;
  peer_ticket_.reset();
  landed_ = landed;
  if (landed.end > 0) SetProvenance(landed.provenance);
}

cache::PrefixLease Sequence::Preempt() {
  MoveTo(SequenceState::kWaiting);
  asked_tiers_ = false;
  DropDraft();
  ++preemptions_;
  entry_ = lease_->entry();
  return TakeLease();
}

cache::PrefixLease Sequence::TakeLease() {
  cache::PrefixLease lease = *std::move(lease_);
  lease_.reset();
  return lease;
}

void Sequence::Advance(const int32_t length) {
  prompt_tokens_run_ += std::clamp(prompt_tokens() - computed_, 0, length);
  computed_ += length;
  Check(running() && computed_ <= static_cast<int32_t>(tokens_.size()), "a span ends within the known tokens", id_);
  if (state_ == SequenceState::kPrefill && computed_ == static_cast<int32_t>(tokens_.size())) {
    MoveTo(SequenceState::kDecode);
  }
}

bool Sequence::IsStopToken(const TokenId token) const {
  const std::vector<TokenId>& stops = request_.stopping.stop_token_ids;
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

bool Sequence::Accept(const TokenId token, std::optional<TokenLogprob> logprob, const TimeNs now) {
  const bool armed = output_tokens() >= request_.stopping.min_tokens;
  const bool is_stop = armed && IsStopToken(token);
  tokens_.push_back(token);
  if (UsesPenalties(request_.sampling)) counts_.AddOutput(token);
  if (!first_token_at_.has_value()) first_token_at_ = now;
  DeltaEvent delta;
  delta.text = TextOf(token, is_stop, armed);
  delta.tokens.push_back(token);
  if (logprob.has_value()) delta.logprobs.push_back(*std::move(logprob));
  Push(std::move(delta), now);
  if (is_stop && matched_.index() == 0) matched_ = token;
  if (matched_.index() != 0) finish_reason_ = FinishReason::kStop;
  return matched_.index() != 0 || output_tokens() >= output_limit_;
}

bool Sequence::AcceptRemote(const TokenId token, std::optional<TokenLogprob> logprob, const TimeNs now) {
  Check(state_ == SequenceState::kWaiting, "only who waits gets tokens from elsewhere", id_);
  Start(now);
  ++remote_tokens_;
  return Accept(token, std::move(logprob), now);
}

std::string Sequence::TextOf(const TokenId token, const bool is_stop, const bool armed) {
  if (!detokenizer_.has_value() || (is_stop && !request_.stopping.include_stop)) return {};
  StopMatcher::Fed fed = stop_.Feed(detokenizer_->Append(token), armed);
  if (fed.matched.has_value()) matched_ = *std::move(fed.matched);
  return std::move(fed.text);
}

void Sequence::Finish(const int64_t kv_bytes, std::optional<SpeculationReport> speculation,
                      std::optional<ViewReport> view, const TimeNs now) {
  MoveTo(SequenceState::kEnded);
  lease_.reset();
  reuse_.computed_tokens = prompt_tokens_run_;
  if (remote_tokens_ > 0) reuse_.transfer_mode += reuse_.transfer_mode.empty() ? "verify" : "+verify";
  FinishedEvent event{.reason = finish_reason_,
                      .matched = matched_,
                      .text_tail = {},
                      .prompt_tokens = prompt_tokens(),
                      .cached_tokens = reuse_.state_match_tokens,
                      .completion_tokens = output_tokens(),
                      .preemptions = preemptions_,
                      .reuse = reuse_,
                      .speculation = std::move(speculation),
                      .view = std::move(view),
                      .kv_bytes = kv_bytes,
                      .prompt_logprobs = std::move(prompt_logprobs_)};
  const bool stop_string = std::holds_alternative<std::string>(matched_);
  if (detokenizer_.has_value() && !stop_string) event.text_tail = stop_.Flush() + detokenizer_->Finish();
  const TimeNs first = first_token_at_.value_or(now);
  event.queued_for = *started_at_ - submitted_at_;
  event.prefill_for = first - *started_at_;
  event.decode_for = now - first;
  event.first_token_after = first - submitted_at_;
  sink_->Push(std::move(event));
}

void Sequence::Fail(Status status) {
  MoveTo(SequenceState::kEnded);
  lease_.reset();
  sink_->Push(FailedEvent{std::move(status)});
}

}  // namespace invar::engine
