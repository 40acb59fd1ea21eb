// A sink that keeps what it gets, for tests that look at events one by one. Threads: any.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/request.h"

namespace invar::engine {

class Collector final : public EventSink {
 public:
  // `bound`: Push answers "behind" from the event of this number on; 0: never.
  explicit Collector(const int bound = 0) : bound_(bound) {}

  bool Push(TokenEvent event) override {
    const MutexLock lock(mu_);
    ++events_;
    if (auto* const delta = std::get_if<DeltaEvent>(&event)) {
      text_ += delta->text;
      tokens_.insert(tokens_.end(), delta->tokens.begin(), delta->tokens.end());
      logprobs_.insert(logprobs_.end(), delta->logprobs.begin(), delta->logprobs.end());
    } else if (auto* const finished = std::get_if<FinishedEvent>(&event)) {
      text_ += finished->text_tail;
      finished_ = std::move(*finished);
      ++ends_;
    } else if (auto* const failed = std::get_if<FailedEvent>(&event)) {
      failed_ = failed->status;
      ++ends_;
    }
    ended_.NotifyAll();
    return bound_ == 0 || events_ < bound_;
  }
  void WaitForEnd() {
    const MutexLock lock(mu_);
    while (ends_ == 0) ended_.Wait(mu_);
  }
  void WaitForTokens(const size_t count) {
    const MutexLock lock(mu_);
    while (tokens_.size() < count && ends_ == 0) ended_.Wait(mu_);
  }

  // What came, after the end or where the test drives the engine itself.
  int events() const { return events_; }
  int ends() const { return ends_; }
  const std::string& text() const { return text_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::vector<TokenLogprob>& logprobs() const { return logprobs_; }
  const std::optional<FinishedEvent>& finished() const { return finished_; }
  const std::optional<Status>& failed() const { return failed_; }

 private:
  const int bound_;
  Mutex mu_;
  CondVar ended_;
  int events_ = 0;
  int ends_ = 0;
  std::string text_;
  std::vector<TokenId> tokens_;
  std::vector<TokenLogprob> logprobs_;
  std::optional<FinishedEvent> finished_;
  std::optional<Status> failed_;
};

}  // namespace invar::engine
