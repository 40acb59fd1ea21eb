// See remote_run.h.
#include "engine/remote_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/wants_logprob.h"

namespace invar::engine {

Status RemoteRun::WhyNot(const VerifiedFrame& frame) const {
  if (ChecksumOf(frame) != frame.crc32c) return Status(StatusCode::kDataLoss, "verified: the checksum is wrong");
  const auto is_usable = [&](const TokenId id) { return id.value() >= 0 && id.value() < options_.usable_ids; };
  if (frame.first < 0 || !std::ranges::all_of(frame.tokens, is_usable)) {
    return InvalidArgument(fmt::format("verified: token ids from 0 to {} are wanted", options_.usable_ids - 1));
  }
  if (frame.logprobs.size() != (WantsLogprob(open_.output) ? frame.tokens.size() : 0)) {
    return InvalidArgument("verified: log-probabilities come where they were asked for, one a token");
  }
  for (size_t i = 0; i < frame.logprobs.size(); ++i) {
    const TokenLogprob& logprob = frame.logprobs[i];
    if (logprob.token != frame.tokens[i] || std::ssize(logprob.top) > open_.output.logprobs.value_or(0)) {
      return InvalidArgument("verified: log-probabilities are not of these tokens");
    }
  }
  return OkStatus();
}

Status RemoteRun::Take(VerifiedFrame frame) {
  if (Status s = WhyNot(frame); !s.ok()) return s;
  {
    const MutexLock lock(mu_);
    if (frame.first > taken_) {
      return InvalidArgument(fmt::format("verified: token {} is next, {} came", taken_, frame.first));
    }
    for (size_t i = static_cast<size_t>(taken_ - frame.first); i < frame.tokens.size(); ++i) {
      Token token{.id = frame.tokens[i], .logprob = {}};
      if (!frame.logprobs.empty()) token.logprob = std::move(frame.logprobs[i]);
      waiting_.push_back(std::move(token));
      ++taken_;
    }
  }
  options_.wake();
  return OkStatus();
}

Status RemoteRun::TakeView(PrefixView view) {
  StatusOr<ImportedView> imported = options_.import(std::move(view));
  if (!imported.ok()) return imported.status();
  {
    const MutexLock lock(mu_);
    view_ = *std::move(imported);
  }
  options_.wake();
  return OkStatus();
}

void RemoteRun::SetSender(std::function<void()> sender) {
  const MutexLock lock(mu_);
  sender_ = std::move(sender);
}

std::optional<DraftFrame> RemoteRun::NextDraft() {
  const MutexLock lock(mu_);
  return std::exchange(draft_, std::nullopt);
}

bool RemoteRun::has_sender() {
  const MutexLock lock(mu_);
  return static_cast<bool>(sender_);
}

void RemoteRun::Offer(DraftFrame draft) {
  const MutexLock lock(mu_);
  draft_ = std::move(draft);
  if (sender_) sender_();
}

std::optional<ImportedView> RemoteRun::NextView() {
  const MutexLock lock(mu_);
  return std::exchange(view_, std::nullopt);
}

std::optional<RemoteRun::Token> RemoteRun::Next() {
  const MutexLock lock(mu_);
  std::optional<Token> next;
  if (waiting_.empty()) return next;
  next.emplace(std::move(waiting_.front()));
  waiting_.pop_front();
  return next;
}

}  // namespace invar::engine
