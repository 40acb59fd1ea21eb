// The rules of stagger.h.
#include "engine/speculate/stagger.h"

#include <algorithm>

namespace invar::engine {
namespace {

bool HasDrafted(const RoundView& round) { return round.drafted >= round.draft_min; }

// Of the synchronous mode: nobody leaves the phase before all are through.
bool AllHaveDrafted(const std::span<const RoundView> rounds) {
  return std::all_of(rounds.begin(), rounds.end(), [](const RoundView& round) { return HasDrafted(round); });
}
bool AnyIsVerifying(const std::span<const RoundView> rounds) {
  return std::any_of(rounds.begin(), rounds.end(), [](const RoundView& r) { return r.phase != RoundPhase::kDraft; });
}

// The stream of the first in the queue that has none yet, with all that it serves. False: nobody waits.
bool ChooseStream(const std::span<const RoundView> rounds, StaggerStep& step) {
  const auto waits = [&](const RoundView& round) {
    return round.phase == RoundPhase::kQueued &&
           std::find(step.stream.begin(), step.stream.end(), round.id) == step.stream.end();
  };
  const RoundView* head = nullptr;
  for (const RoundView& round : rounds) {
    if (waits(round) && (head == nullptr || round.queued < head->queued)) head = &round;
  }
  if (head == nullptr) return false;
  for (const RoundView& round : rounds) {
    const bool shares = head->prefix != 0 && round.prefix == head->prefix && waits(round);
    if (round.id == head->id || shares) step.stream.push_back(round.id);
  }
  return true;
}

}  // namespace

StaggerStep PlanStagger(const std::span<const RoundView> rounds, const bool link_idle, const int32_t streams_open,
                        const StaggerLimits& limits) {
  StaggerStep step;
  const bool all_wait = limits.synchronous && (AnyIsVerifying(rounds) || AllHaveDrafted(rounds));
  for (const RoundView& round : rounds) {
    switch (round.phase) {
      case RoundPhase::kDraft:
        if (!HasDrafted(round)) {
          if (!all_wait) step.draft.push_back(round.id);
        } else if (!limits.synchronous || AllHaveDrafted(rounds)) {
          step.queue.push_back(round.id);
        }
        break;
      case RoundPhase::kQueued:
      case RoundPhase::kFetching:
        if (!limits.synchronous && round.drafted < round.draft_max) step.draft.push_back(round.id);
        break;
      case RoundPhase::kFetched:
        step.verify.push_back(round.id);
        break;
    }
  }
  if (!link_idle) return step;
  const int32_t places = std::min(limits.streams_at_once, limits.streams_max - streams_open);
  for (int32_t begun = 0; begun < places; ++begun) {
    if (!ChooseStream(rounds, step)) break;
  }
  return step;
}

}  // namespace invar::engine
