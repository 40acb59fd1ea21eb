// The rules of residency.h.
#include "engine/slow/residency.h"

#include <algorithm>

namespace invar::engine {
namespace {

// Fewer pages are not worth a stream a round.
constexpr int32_t kGivesMin = 2;

// The fewest go: those who give most, then the newest.
const ResidentView* Largest(const std::span<const ResidentView> residents, const std::vector<SequenceId>& leave) {
  const ResidentView* largest = nullptr;
  for (const ResidentView& r : residents) {
    const bool taken = std::find(leave.begin(), leave.end(), r.id) != leave.end();
    if (taken || r.leaving || r.away > 0 || !r.may_leave || r.gives < kGivesMin) continue;
    if (largest == nullptr || r.gives >= largest->gives) largest = &r;
  }
  return largest;
}

// Those who cannot draft first, then the smallest.
const ResidentView* FirstBack(const std::span<const ResidentView> residents) {
  const ResidentView* first = nullptr;
  for (const ResidentView& r : residents) {
    if (r.away == 0) continue;
    const bool sooner =
        first == nullptr || r.drafts < first->drafts || (r.drafts == first->drafts && r.away < first->away);
    if (sooner) first = &r;
  }
  return first;
}

}  // namespace

Residency PlanResidency(const std::span<const ResidentView> residents, const int32_t free_pages,
                        const int32_t wanted_pages) {
  Residency plan;
  int32_t spare = free_pages - wanted_pages;
  bool any_leaves = false;
  for (const ResidentView& r : residents) {
    if (!r.leaving) continue;
    spare += r.gives;
    any_leaves = true;
  }
  while (spare < 0) {
    const ResidentView* const next = Largest(residents, plan.leave);
    if (next == nullptr) break;
    plan.leave.push_back(next->id);
    spare += next->gives;
    any_leaves = true;
  }
  if (any_leaves) return plan;
  const ResidentView* const back = FirstBack(residents);
  if (back != nullptr && spare >= PagesToComeBack(back->away)) plan.back = back->id;
  return plan;
}

}  // namespace invar::engine
