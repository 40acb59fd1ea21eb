// From who is alive to who moves.
#include "engine/loop/residents.h"

#include <algorithm>
#include <utility>

#include "kernels/numerics.h"

namespace invar::engine {

bool Residents::Move() {
  if (tier_ == nullptr) return false;
  residents_.clear();
  bool moves = false;
  bool any_may_move = false;
  for (const auto& [id, sequence] : live_) {
    if (!sequence->has_lease()) continue;
    if (sequence->away() != nullptr) GoOut(*sequence);
    residents_.push_back(ViewOf(*sequence));
    const ResidentView& resident = residents_.back();
    moves = moves || resident.leaving;
    any_may_move = any_may_move || resident.may_leave || resident.away > 0;
  }
  if (any_may_move && tier_->IsOpen()) {
    const MemoryNeed need = admission_.Need();
    Residency plan = PlanResidency(residents_, need.free_pages, Wanted(need.wanted));
    // While rounds do not pay, whoever is out may only come back.
    if (rounds_.choice().mode == DecodeMode::kPlain && !eager_) plan.leave.clear();
    for (const SequenceId id : plan.leave) {
      Sequence& sequence = live_.Find(id);
      sequence.SetAway(tier_->Make());
      GoOut(sequence);
      moves = true;
    }
    if (plan.back.has_value()) {
      Sequence& sequence = live_.Find(*plan.back);
      if (tier_->Return(*sequence.away(), sequence.lease())) sequence.SetAway(nullptr);
      moves = true;
    }
  }
  return moves;
}

// For a newcomer others move out only while the link serves one more.
int32_t Residents::Wanted(const PagesWanted& wanted) const {
  if (eager_) return INT32_MAX;
  const bool serves = static_cast<int32_t>(residents_.size()) < rounds_.choice().residents;
  return wanted.running + (serves ? wanted.next : 0);
}

// A step of the way, or a page that has become whole. Drafts must not miss what goes.
void Residents::GoOut(Sequence& sequence) {
  if (sequence.round().stream != nullptr) return;  // It is being read.
  AwayKv& away = *sequence.away();
  const bool may_go = speculator_.DraftsWithoutFullKv(sequence) && tier_->IsOpen();
  const bool all = may_go && tier_->Write(away, sequence.lease(), sequence.computed());
  if (all && away.written() > away.pages()) tier_->Release(away, sequence.lease(), sequence.computed_tokens());
  if (away.pages() == 0 && !may_go) sequence.SetAway(nullptr);
}

void Residents::ComeBackAtEnd(Sequence& sequence) {
  if (sequence.away_pages() == 0 || !sequence.lease().published_before_parting() || !tier_->IsOpen()) return;
  const MemoryNeed need = admission_.Need();
  if (need.free_pages - need.wanted.running < sequence.away_pages()) return;
  if (tier_->Return(*sequence.away(), sequence.lease())) sequence.SetAway(nullptr);
}

bool Residents::MayLeave(const Sequence& sequence) const {
  // What is exported is copied from its own pages.
  const bool exports = sequence.request().export_from_page.has_value() || sequence.coding() != nullptr;
  return sequence.state() == SequenceState::kDecode && sequence.view() == nullptr && !exports &&
         speculator_.DraftsWithoutFullKv(sequence);
}

ResidentView Residents::ViewOf(Sequence& sequence) const {
  const int32_t away = sequence.away_pages();
  const int32_t whole = sequence.computed() / kernels::kPageTokens - away;
  return {.id = sequence.id(),
          .may_leave = away == 0 && MayLeave(sequence),
          .leaving = sequence.away() != nullptr && away == 0,
          .drafts = speculator_.ViewTokens(sequence) > 0,
          .gives = std::min(whole, sequence.own_pages(cache_.memory().pages())),
          .away = sequence.round().stream != nullptr ? 0 : away};
}

SlowTierStats Residents::stats() const {
  if (tier_ == nullptr) return {};
  SlowTierStats stats = tier_->stats();
  stats.staggered = rounds_.choice().mode == DecodeMode::kStaggered ? 1 : 0;
  stats.gain = rounds_.choice().gain;
  stats.drafted_beside_streams = rounds_.drafted_beside_streams();
  stats.away =
      std::count_if(live_.begin(), live_.end(), [](const auto& entry) { return entry.second->away_pages() > 0; });
  return stats;
}

}  // namespace invar::engine
