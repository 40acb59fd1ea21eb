// See remote_tokens.h.
#include "engine/loop/remote_tokens.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace invar::engine {

bool RemoteTokens::Take() {
  std::erase_if(drafting_, [&](const auto& entry) {
    const Sequence* const sequence = live_.FindOrNull(entry.first);
    return sequence == nullptr || !sequence->peer_ticket().has_value();
  });
  bool came = false;
  for (auto it = live_.begin(); it != live_.end();) {
    Sequence& sequence = *(it++)->second;  // Finishing erases it.
    if (!sequence.peer_ticket().has_value()) continue;
    RemoteRun* const run = inbound_.RunOf(*sequence.peer_ticket());
    if (run == nullptr) continue;
    const SequenceId id = sequence.id();
    if (TakeFor(sequence, *run)) came = true;
    if (live_.FindOrNull(id) != nullptr && DraftFor(sequence, *run)) came = true;
  }
  return came;
}

bool RemoteTokens::TakeFor(Sequence& sequence, RemoteRun& run) {
  bool came = false;
  while (!sequence.paused()) {
    std::optional<RemoteRun::Token> token = run.Next();
    if (!token.has_value()) break;
    came = true;
    const bool is_first = sequence.output_tokens() == 0;
    inbound_.CountRemote(is_first);
    stats_.first_tokens += is_first ? 1 : 0;
    live_.Charge(sequence, 1);
    if (!sequence.AcceptRemote(token->id, std::move(token->logprob), clock_.Now())) continue;
    live_.Finish(sequence, /*kv_bytes=*/0);
    break;
  }
  return came;
}

bool RemoteTokens::DraftFor(Sequence& sequence, RemoteRun& run) {
  if (limits_.draft_tokens_max == 0 || sequence.paused() || sequence.output_tokens() == 0 || !run.has_sender()) {
    return false;
  }
  Drafting* const drafting = FindOrMake(sequence, run);
  if (drafting == nullptr) return false;
  if (sequence.tokens().size() != drafting->known) Judge(sequence, *drafting);
  if (drafting->is_sent) return false;
  // Even where the last token comes next: who verifies waits for word.
  const int32_t most = std::max(1, std::min(limits_.draft_tokens_max, sequence.output_left() - 1));
  DraftSampler sampler = speculator_.SamplerOf(sequence);
  for (const TokenId token : drafting->draft) sampler.Take(token);
  const bool goes_on = drafting->view->GoOn(sequence.tokens(), sampler, drafting->draft);
  if (drafting->view->is_over()) {
    // Who verifies goes on by itself after a while.
    drafting_.erase(sequence.id());
    return true;
  }
  if (goes_on && std::ssize(drafting->draft) < most) return true;
  run.Offer({.first = sequence.output_tokens(), .tokens = drafting->draft});
  drafting->is_sent = true;
  return true;
}

RemoteTokens::Drafting* RemoteTokens::FindOrMake(const Sequence& sequence, RemoteRun& run) {
  if (const auto found = drafting_.find(sequence.id()); found != drafting_.end()) return &found->second;
  std::optional<ImportedView> arrived = run.NextView();
  if (!arrived.has_value()) return nullptr;
  std::unique_ptr<ArrivedView> view =
      ArrivedView::Make(model_, own_, limits_.rows_max, run.view_wish(), *std::move(arrived));
  if (view == nullptr) return nullptr;
  inbound_.CountView();
  // From here on drafts come: who verifies would else be past each before it is done.
  run.Offer({.first = sequence.output_tokens()});
  return &drafting_.emplace(sequence.id(), Drafting{.view = std::move(view)}).first->second;
}

void RemoteTokens::Judge(const Sequence& sequence, Drafting& drafting) {
  if (drafting.is_sent) {
    const std::span<const TokenId> came = std::span(sequence.tokens()).subspan(drafting.known);
    const auto [guess, token] = std::ranges::mismatch(drafting.draft, came);
    if (token == came.end()) return;
    inbound_.CountDraft(std::ssize(drafting.draft), guess - drafting.draft.begin());
  }
  drafting.known = sequence.tokens().size();
  drafting.draft.clear();
  drafting.is_sent = false;
}

int64_t RemoteTokens::bytes() const {
  int64_t sum = 0;
  for (const auto& [id, drafting] : drafting_) sum += drafting.view->bytes();
  return sum;
}

}  // namespace invar::engine
