// PlanResidency(): whose full KV leaves the fast tier, and whose comes back. A pure function of plain numbers, like
// Plan(): whoever drafts on a view can do without its full KV between verifies, so its pages are had before anybody is
// preempted, and before a newcomer has to wait.
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace invar::engine {

struct ResidentView {
  SequenceId id;
  bool may_leave = false;  // It drafts on a view, or will on the one that is made when it leaves.
  bool leaving = false;    // On its way out: what it gives back is counted on.
  bool drafts = true;      // Of one that is away: whether it still has its view.
  int32_t gives = 0;       // Pages that would be free when it has left.
  int32_t away = 0;        // Pages that it needs to come back; 0: it is not away.
};

// Free pages that one needs to come back: a part of its own stay free beside them, so that the next page wanted does
// not send it out again.
constexpr int32_t PagesToComeBack(const int32_t away) { return away + away / 4; }

struct Residency {
  std::vector<SequenceId> leave;
  std::optional<SequenceId> back;  // One a step: it takes a read of all its KV.
};

// `wanted_pages`: what running sequences and the next newcomer will take beyond what they have.
Residency PlanResidency(std::span<const ResidentView> residents, int32_t free_pages, int32_t wanted_pages);

}  // namespace invar::engine
