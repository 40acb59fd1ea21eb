// See verify_session.h. Whoever stands is paused as one whose reader is behind; what ends that comes later, from
// another thread, and is acted on at the next step boundary, so it cannot be missed.
#include "engine/verify_session.h"

#include <fmt/format.h>

#include <utility>

#include "engine/validate.h"

namespace invar::engine {
namespace {

// More are not made before the consumer has taken some: seconds of decoding, and few bytes.
constexpr int64_t kUnwrittenMax = 1024;
constexpr int kPatienceBeats = 2;
// What a step has no room for waits for the next.
constexpr int64_t kDraftTokensMax = 1024;

}  // namespace

std::shared_ptr<VerifySession> VerifySession::Begin(Engine& engine, Wanted wanted, Take take) {
  std::shared_ptr<VerifySession> self(new VerifySession(engine, std::move(wanted), std::move(take)));
  self->Submit();
  return self;
}

void VerifySession::Submit() {
  Request request;
  request.request_id = wanted_.request_id;
  request.tenant = wanted_.open.scope.tenant;
  request.prompt = wanted_.open.prompt;
  request.prompt_field = "open.tokens";
  request.sampling = wanted_.open.sampling;
  request.stopping = wanted_.open.stopping;
  request.output = wanted_.open.output;
  request.deadline = wanted_.deadline;
  request.cache.salt = wanted_.open.scope.salt;
  if (const int32_t most = engine_.request_limits().draft_tokens_max; most > 0) {
    request.speculation.drafter = kOfferedDrafter;
    request.speculation.draft_tokens = most;
    request.speculation.offers = offers_;
  }
  const StatusOr<SequenceId> id = engine_.Submit(std::move(request), shared_from_this());
  if (!id.ok()) return End(id.status());
  bool is_over = false;
  {
    const MutexLock lock(mu_);
    running_ = *id;
    is_over = has_ended_;
  }
  if (is_over) engine_.Cancel(*id);
  GoOn();
}

bool VerifySession::Push(TokenEvent event) {
  if (auto* const delta = std::get_if<DeltaEvent>(&event); delta != nullptr && !delta->tokens.empty()) {
    VerifiedFrame frame{.tokens = std::move(delta->tokens), .logprobs = std::move(delta->logprobs)};
    // Known before it is handed over: what comes of that may end it.
    const bool goes_on = Note(frame);
    if (!frame.tokens.empty()) take_(std::move(frame));
    return goes_on;
  }
  if (std::holds_alternative<FinishedEvent>(event)) End(OkStatus());
  if (auto* const failed = std::get_if<FailedEvent>(&event); failed != nullptr) End(std::move(failed->status));
  return true;
}

bool VerifySession::Note(VerifiedFrame& frame) {
  const MutexLock lock(mu_);
  if (has_ended_) {
    frame = {};
    return true;
  }
  frame.first = next_;
  frame.crc32c = ChecksumOf(frame);
  next_ += static_cast<int32_t>(frame.tokens.size());
  last_ = frame.tokens.back();
  unwritten_ += std::ssize(frame.tokens);
  silent_beats_ = 0;
  stands_ = MustStand();
  return !stands_;
}

bool VerifySession::StandsBehindDraft() const {
  const int64_t index = int64_t{next_} - 1 - draft_.first;
  if (index == -1) return false;  // It begins here.
  return index < 0 || index >= std::ssize(draft_.tokens) || draft_.tokens[static_cast<size_t>(index)] != last_;
}

bool VerifySession::MustStand() const { return unwritten_ > kUnwrittenMax || (drafts_ && StandsBehindDraft()); }

void VerifySession::GoOn() {
  std::optional<SequenceId> id;
  {
    const MutexLock lock(mu_);
    if (!stands_ || MustStand()) return;
    stands_ = !running_.has_value();  // Submit does it then.
    id = running_;
  }
  if (id.has_value()) engine_.Unpause(*id);
}

Status VerifySession::Offer(DraftFrame draft) {
  const RequestLimits& limits = engine_.request_limits();
  if (limits.draft_tokens_max == 0) return OkStatus();
  for (const TokenId token : draft.tokens) {
    if (Status s = CheckTokenId(token.value(), limits, "draft.tokens"); !s.ok()) return s;
  }
  if (draft.first < 0 || std::ssize(draft.tokens) > kDraftTokensMax) {
    return InvalidArgument(fmt::format("draft: wants a place from 0 on, and {} guesses at most", kDraftTokensMax),
                           "draft");
  }
  offers_->Put(prompt_tokens_ + draft.first, draft.tokens);
  std::optional<SequenceId> id;
  {
    const MutexLock lock(mu_);
    drafts_ = true;
    silent_beats_ = 0;
    draft_ = std::move(draft);
    if (stands_ && unwritten_ <= kUnwrittenMax && running_.has_value()) {
      stands_ = false;
      id = running_;
    }
  }
  if (id.has_value()) engine_.Unpause(*id);
  return OkStatus();
}

void VerifySession::Written(const int64_t tokens) {
  {
    const MutexLock lock(mu_);
    unwritten_ -= tokens;
  }
  GoOn();
}

void VerifySession::Beat() {
  {
    const MutexLock lock(mu_);
    if (stands_ && drafts_ && ++silent_beats_ >= kPatienceBeats) drafts_ = false;
  }
  GoOn();
}

void VerifySession::Cancel() {
  std::optional<SequenceId> running;
  {
    const MutexLock lock(mu_);
    has_ended_ = true;
    running = running_;
  }
  if (running.has_value()) engine_.Cancel(*running);
}

void VerifySession::End(Status status) {
  {
    const MutexLock lock(mu_);
    if (std::exchange(has_ended_, true)) return;
  }
  take_(std::move(status));
}

}  // namespace invar::engine
