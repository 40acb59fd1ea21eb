// The order of events: Started, Deltas, one end; nothing while paused but the end.
#include "tools/sim/observed.h"

#include <algorithm>
#include <utility>

namespace invar::sim {

void Observed::Judge(const bool holds, const char* const problem) {
  if (!holds) problems_.push_back("request " + std::to_string(planned_.index) + ": " + problem);
}

bool Observed::Push(engine::TokenEvent event) {
  Judge(!ended(), "an event after the end");
  const bool is_end = event.index() >= 2;
  Judge(is_end || !behind_, "a token though its reader was behind");
  if (is_end) ended_at_ = clock_.Now();
  if (const auto* const start = std::get_if<engine::StartedEvent>(&event)) {
    Judge(!started_at_.has_value(), "started twice");
    Judge(clock_.Now() < planned_.request.deadline, "started after its deadline");
    started_at_ = clock_.Now();
    reuse_ = start->reuse;
  } else if (auto* const delta = std::get_if<engine::DeltaEvent>(&event)) {
    Judge(started(), "a token before the start");
    Judge(IsUtf8(delta->text), "a delta that is not whole UTF-8");
    text_ += delta->text;
    tokens_.insert(tokens_.end(), delta->tokens.begin(), delta->tokens.end());
    logprobs_.insert(logprobs_.end(), delta->logprobs.begin(), delta->logprobs.end());
  } else if (auto* const finished = std::get_if<engine::FinishedEvent>(&event)) {
    Judge(started(), "finished before the start");
    Judge(finished->cached_tokens == reuse_->state_match_tokens &&
              finished->reuse.state_match_tokens == reuse_->state_match_tokens &&
              finished->reuse.kv_match_tokens == reuse_->kv_match_tokens &&
              (finished->reuse.computed_tokens == reuse_->computed_tokens || finished->preemptions > 0),
          "another reuse at the end than at the start");
    text_ += finished->text_tail;
    finished_ = std::move(*finished);
  } else {
    failed_ = std::get<engine::FailedEvent>(event).status;
  }
  if (++unread_ <= planned_.reader.bound) return true;
  if (!behind_ && !is_end) ++pauses_;
  behind_ = true;
  return false;
}

bool Observed::Read(const int32_t events) {
  unread_ -= std::min<int64_t>(unread_, events);
  if (!behind_ || unread_ > planned_.reader.bound / 2) return false;
  behind_ = false;
  return true;
}

bool IsUtf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const int more = lead < 0x80 ? 0 : lead < 0xC2 ? -1 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : lead < 0xF5 ? 3 : -1;
    if (more < 0 || i + more >= text.size()) return false;
    uint32_t code = more == 0 ? lead : lead & (0x3FU >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<uint8_t>(text[i + k]);
      if ((next & 0xC0U) != 0x80U) return false;
      code = code << 6 | (next & 0x3FU);
    }
    const bool overlong = (more == 2 && code < 0x800) || (more == 3 && (code < 0x10000 || code > 0x10FFFF));
    if (overlong || (code >= 0xD800 && code < 0xE000)) return false;
    i += more + 1;
  }
  return true;
}

}  // namespace invar::sim
