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

void ChooseStream(const std::span<const RoundView> rounds, StaggerStep& step) {
  const RoundView* head = nullptr;
  for (const RoundView& round : rounds) {
    if (round.phase == RoundPhase::kQueued && (head == nullptr || round.queued < head->queued)) head = &round;
  }
  if (head == nullptr) return;
  for (const RoundView& round : rounds) {
    const bool shares = head->prefix != 0 && round.prefix == head->prefix && round.phase == RoundPhase::kQueued;
    if (round.id == head->id || shares) step.stream.push_back(round.id);
  }
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
  if (link_idle && streams_open < limits.streams_max) ChooseStream(rounds, step);
  return step;
}

}  // namespace invar::engine
