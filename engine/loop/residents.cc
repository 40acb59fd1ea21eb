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
  for (const auto& [id, sequence] : live_) {
    if (!sequence->has_lease()) continue;
    if (sequence->away() != nullptr) GoOut(*sequence);
    residents_.push_back(ViewOf(*sequence));
    moves = moves || residents_.back().leaving;
  }
  if (residents_.empty()) return false;
  if (tier_->IsOpen()) {
    const MemoryNeed need = eager_ ? MemoryNeed{.wanted_pages = INT32_MAX} : admission_.Need();
    const Residency plan = PlanResidency(residents_, need.free_pages, need.wanted_pages);
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
  return GiveTurns() || moves;
}

// A step of the way, or a page that has become whole. Drafts must not miss what goes.
void Residents::GoOut(Sequence& sequence) {
  AwayKv& away = *sequence.away();
  const bool may_go = speculator_.DraftsWithoutFullKv(sequence) && tier_->IsOpen();
  const bool all = may_go && tier_->Write(away, sequence.lease(), sequence.computed());
  if (all && away.written() > away.pages()) tier_->Release(away, sequence.lease(), sequence.computed_tokens());
  if (away.pages() == 0 && !may_go) sequence.SetAway(nullptr);
}

bool Residents::MayLeave(const Sequence& sequence) const {
  // What is exported is copied from its own pages.
  const bool exports = sequence.request().export_from_page.has_value();
  return sequence.state() == SequenceState::kDecode && sequence.view() == nullptr && !exports &&
         speculator_.DraftsWithoutFullKv(sequence);
}

ResidentView Residents::ViewOf(Sequence& sequence) const {
  const int32_t away = sequence.away_pages();
  const int32_t whole = sequence.computed() / kernels::kPageTokens - away;
  return {.id = sequence.id(),
          .may_leave = MayLeave(sequence),
          .leaving = sequence.away() != nullptr && away == 0,
          .drafts = speculator_.DraftsWithoutFullKv(sequence),
          .gives = std::min(whole, sequence.own_pages(cache_.memory().pages())),
          .away = away};
}

// Who has waited longest goes first, as many as staging memory has room for.
bool Residents::GiveTurns() {
  std::vector<Sequence*> away;
  for (const auto& [id, sequence] : live_) {
    sequence->SetWaits(false);
    if (sequence->away_pages() > 0 && !sequence->paused()) away.push_back(sequence.get());
  }
  std::stable_sort(away.begin(), away.end(), [this](const Sequence* const a, const Sequence* const b) {
    return last_turn_[a->id()] < last_turn_[b->id()];
  });
  int64_t bytes = 0;
  int64_t streams = 0;
  ++turns_;
  for (Sequence* const sequence : away) {
    bytes += tier_->LeastStagingBytes(*sequence->away());
    const bool waits = streams > 0 && bytes > tier_->staging_bytes();
    sequence->SetWaits(waits);
    if (waits) continue;
    ++streams;
    last_turn_[sequence->id()] = turns_;
  }
  std::erase_if(last_turn_, [this](const auto& entry) { return live_.FindOrNull(entry.first) == nullptr; });
  staging_each_ = tier_->staging_bytes() / std::max<int64_t>(1, streams);
  return static_cast<int64_t>(away.size()) > streams;
}

std::unique_ptr<LayerStream> Residents::StreamOf(Sequence& sequence) {
  const AwayKv& away = *sequence.away();
  sequence.AddStreamed(away.PartBytes(0) * static_cast<int64_t>(away.parts().layers));
  return tier_->Stream(away, staging_each_);
}

SlowTierStats Residents::stats() const {
  if (tier_ == nullptr) return {};
  SlowTierStats stats = tier_->stats();
  stats.away =
      std::count_if(live_.begin(), live_.end(), [](const auto& entry) { return entry.second->away_pages() > 0; });
  return stats;
}

}  // namespace invar::engine
