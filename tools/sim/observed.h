// The reader's end of one simulated request: takes the engine's events, judges their order, and falls behind as told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"
#include "tools/sim/schedule.h"

namespace invar::sim {

class Observed final : public engine::EventSink {
 public:
  Observed(const PlannedRequest& planned, const Clock& clock) : planned_(planned), clock_(clock) {}

  bool Push(engine::TokenEvent event) override;

  // Reads up to `events`. True: it had fallen behind and now wants more, so the engine must be told.
  bool Read(int32_t events);

  bool ended() const { return finished_.has_value() || failed_.has_value(); }
  bool started() const { return started_at_.has_value(); }
  std::optional<TimeNs> started_at() const { return started_at_; }
  std::optional<TimeNs> ended_at() const { return ended_at_; }
  // What it was told at its start.
  const std::optional<engine::PrefixReuse>& reuse() const { return reuse_; }
  int64_t pauses() const { return pauses_; }
  const std::string& text() const { return text_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::vector<engine::TokenLogprob>& logprobs() const { return logprobs_; }
  const std::optional<engine::FinishedEvent>& finished() const { return finished_; }
  const std::optional<Status>& failed() const { return failed_; }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void Judge(bool holds, const char* problem);

  const PlannedRequest& planned_;
  const Clock& clock_;
  std::optional<TimeNs> started_at_;
  std::optional<TimeNs> ended_at_;
  std::optional<engine::PrefixReuse> reuse_;
  bool behind_ = false;
  int64_t unread_ = 0;
  int64_t pauses_ = 0;
  std::string text_;
  std::vector<TokenId> tokens_;
  std::vector<engine::TokenLogprob> logprobs_;
  std::optional<engine::FinishedEvent> finished_;
  std::optional<Status> failed_;
  std::vector<std::string> problems_;
};

// Whether `text` is well-formed UTF-8 (no overlong forms, no surrogates).
bool IsUtf8(const std::string& text);

}  // namespace invar::sim
