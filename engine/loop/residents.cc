// From who is alive to who moves.
#include "engine/loop/residents.h"

#include <algorithm>
#include <utility>

#include "kernels/numerics.h"

namespace invar::engine {
namespace {

// A page of the tail, and what upkeep adds to the bodies.
constexpr int64_t kViewGrowthPages = 2;

}  // namespace

bool Residents::Move() {
  if (tier_ == nullptr) return false;
  if (!live_.empty()) ShareMemory();
  residents_.clear();
  makes_view_ = false;
  bool moves = false;
  bool any_may_move = false;
  bool any_away = false;
  for (const auto& [id, sequence] : live_) {
    if (!sequence->has_lease()) continue;
    if (sequence->moves_out_in_prefill()) {
      moves = GoOutInPrefill(*sequence) || moves;
    } else if (sequence->away() != nullptr) {
      moves = GoOut(*sequence) || moves;
    }
    if (!sequence->has_lease()) continue;  // What it had lost is computed again.
    residents_.push_back(ViewOf(*sequence));
    const ResidentView& resident = residents_.back();
    moves = moves || resident.leaving;
    any_away = any_away || resident.leaving || sequence->away_pages() > 0;
    any_may_move = any_may_move || resident.may_leave || resident.away > 0;
  }
  // No more share the link than rounds are worth it for, and nobody takes the place of who has to come back.
  admission_.SetRunningMax(any_away && !eager_ ? rounds_.choice().residents : INT32_MAX);
  if (!live_.empty()) LetEnter(admission_.Need(), any_away);
  if (any_may_move && tier_->IsOpen()) {
    const MemoryNeed need = admission_.Need();
    Residency plan = PlanResidency(residents_, need.free_pages, Wanted(need, any_away));
    // While rounds do not pay, whoever is out may only come back.
    if (!rounds_.on() && !eager_) plan.leave.clear();
    for (const SequenceId id : plan.leave) {
      Sequence& sequence = live_.Find(id);
      // One a step. Where its view has no room beside its full KV, it follows when that has gone.
      if (!speculator_.DraftsWithoutFullKv(sequence) && std::exchange(makes_view_, true)) continue;
      const int64_t own_bytes = sequence.pages() * cache_.memory().pages().block_bytes();
      if (!MakeViewReady(sequence) && !HasRoomForView(sequence, own_bytes)) continue;
      sequence.SetAway(tier_->Make(std::ssize(sequence.tokens())));
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

// Whose prompt has no room as a whole enters in parts, one after another: each has its view before the next one comes,
// which so finds no more promised than there is.
void Residents::LetEnter(const MemoryNeed& need, const bool any_away) {
  const int64_t page_bytes = cache_.memory().pages().block_bytes();
  // What drafters have and do not use is free as well.
  const int64_t idle_bytes = share_.drafters_bytes() - speculator_.stats().drafter_bytes;
  const int64_t free_pages = need.free_pages - need.wanted.running + std::max<int64_t>(0, idle_bytes) / page_bytes;
  const bool one_is_on_the_way = std::any_of(live_.begin(), live_.end(), [&](const auto& entry) {
    const Sequence& sequence = *entry.second;
    return sequence.moves_out_in_prefill() || (sequence.away_pages() > 0 && speculator_.ViewTokens(sequence) == 0);
  });
  for (const auto& [id, sequence] : live_) {
    if (sequence->state() != SequenceState::kWaiting) continue;
    const auto pages = cache::StateShape::PagesFor(static_cast<int64_t>(sequence->tokens().size()));
    const bool in_parts = Moves() && !one_is_on_the_way && MayBeAway(*sequence) && pages > working_pages_ &&
                          (any_away || eager_ || pages > free_pages) &&
                          HasRoomForView(*sequence, (free_pages - working_pages_) * page_bytes - idle_bytes);
    sequence->SetPagesMax(in_parts ? working_pages_ : INT32_MAX);
  }
}

// With so many bytes of full KV's given to drafters.
bool Residents::HasRoomForView(const Sequence& sequence, const int64_t beside_bytes) const {
  const int64_t used = speculator_.stats().drafter_bytes;
  const int64_t most = std::min(share_.shared_bytes(), share_.drafters_bytes() + beside_bytes);
  return used + speculator_.ViewBytes(sequence) <= most;
}

// While rounds pay, views have what they want of the memory that both want; else full KV, when it is short.
void Residents::ShareMemory() {
  const MemoryNeed need = admission_.Need();
  const bool any_away =
      std::any_of(live_.begin(), live_.end(), [](const auto& entry) { return entry.second->away_pages() > 0; });
  // Who is away comes back as to a place that is free.
  const bool is_short = any_away || need.free_pages < need.wanted.running + need.wanted.next;
  const bool yields = is_short && !rounds_.on() && !eager_;
  if (yields && any_away) DropViewInTheWay(need);
  int64_t kept_pages = 0;  // Views of those who are away grow on.
  bool all_out = true;
  for (const auto& [id, sequence] : live_) {
    all_out = all_out && (!sequence->has_lease() || sequence->away_pages() > 0 || sequence->moves_out_in_prefill());
    const bool grows = sequence->away() != nullptr && (!yields || speculator_.ViewTokens(*sequence) > 0);
    if (grows) kept_pages += kViewGrowthPages;
    if (yields && sequence->away() == nullptr) speculator_.DropView(*sequence);
  }
  // Once all are out, views leave what the next to come needs: it is in the fast tier as a whole at first.
  const int64_t page_bytes = cache_.memory().pages().block_bytes();
  const int64_t free_pages = std::max(0, need.free_pages - need.wanted.running);
  const int64_t spare_pages = need.free_pages - need.wanted.running - (all_out ? need.wanted.next : 0);
  const int64_t beside = std::min(share_.shared_bytes(), share_.drafters_bytes() + spare_pages * page_bytes);
  const int64_t kept = kept_pages == 0 ? 0 : speculator_.stats().drafter_bytes + kept_pages * page_bytes;
  share_.Fit(yields ? kept : std::max(kept, beside), free_pages * page_bytes, clock_.Now());
}

// Beside the views of all nobody who is away would have room to come back: one a step goes, until there is.
void Residents::DropViewInTheWay(const MemoryNeed& need) {
  int32_t least = INT32_MAX;
  Sequence* viewed = nullptr;
  for (const auto& [id, sequence] : live_) {
    const bool is_away = sequence->away_pages() > 0 && sequence->state() == SequenceState::kDecode;
    if (is_away) least = std::min(least, sequence->away_pages());
    const bool is_idle = is_away && sequence->round().stream == nullptr && speculator_.ViewTokens(*sequence) > 0;
    if (is_idle && viewed == nullptr) viewed = sequence.get();
  }
  const bool is_short = least != INT32_MAX && need.free_pages - need.wanted.running < PagesToComeBack(least);
  if (is_short && viewed != nullptr) speculator_.DropView(*viewed);
}

// For a newcomer others move out only while the link serves one more. Once somebody is out, all go: a token at a time
// beside the drafts of others would be slow for those who stay, and for all. Where rounds do not pay, who is out goes
// before whoever comes.
int32_t Residents::Wanted(const MemoryNeed& need, const bool any_away) const {
  if (eager_ || (rounds_.on() && any_away)) return INT32_MAX;
  if (!rounds_.on()) return need.wanted.running;
  const bool serves = static_cast<int32_t>(residents_.size()) < rounds_.choice().residents;
  return need.wanted.running + (serves ? need.wanted.next : 0);
}

// A step of the way, or a page that has become whole. Drafts must not miss what goes: a view follows first, or there is
// none and it is made from what lies in the slow tier. True: more follows in the next step.
bool Residents::GoOut(Sequence& sequence) {
  if (sequence.round().stream != nullptr || sequence.state() != SequenceState::kDecode) return false;
  AwayKv& away = *sequence.away();
  const bool goes_on = away.pages() > 0 || rounds_.on() || eager_;
  const bool lacks_view = speculator_.ViewTokens(sequence) == 0;
  const bool may_make = lacks_view && Moves() && !makes_view_;
  const bool follows = (!lacks_view || may_make) && MakeViewReady(sequence);
  if (!sequence.has_lease()) return true;
  const bool made_view = lacks_view && follows;
  makes_view_ = makes_view_ || made_view;
  const bool may_go = goes_on && tier_->IsOpen() && (lacks_view || follows);
  if (may_go) WriteWholePages(sequence);
  if (away.pages() == 0 && !may_go) sequence.SetAway(nullptr);
  return made_view;
}

// While its prompt is run whole pages go as they come, and later ones are run on what streams back.
bool Residents::GoOutInPrefill(Sequence& sequence) {
  if (sequence.round().stream != nullptr) return false;
  if (!Moves()) {  // What is not away yet stays.
    sequence.SetPagesMax(INT32_MAX);
    return true;
  }
  // Until then its rows stand in pages that it shares, and are not written.
  if (sequence.computed() < std::max(sequence.lease().match().kv_tokens, kernels::kPageTokens)) return false;
  if (sequence.away() == nullptr) sequence.SetAway(tier_->Make(std::ssize(sequence.tokens())));
  const int32_t before = sequence.away()->written();
  WriteWholePages(sequence);
  return sequence.away()->written() > before;
}

// What a step may write of them; they leave the pool when all are written.
void Residents::WriteWholePages(Sequence& sequence) {
  AwayKv& away = *sequence.away();
  const bool all = tier_->Write(away, sequence.lease(), sequence.computed());
  if (all && away.written() > away.pages()) tier_->Release(away, sequence.lease(), sequence.computed_tokens());
}

// False: it has none, or it is computed again, as what is away of it could not be read.
bool Residents::MakeViewReady(Sequence& sequence) {
  const StatusOr<bool> ready = speculator_.MakeViewReady(sequence);
  if (ready.ok()) return *ready;
  tier_->Failed(ready.status());
  live_.Preempt(sequence);
  return false;
}

void Residents::ComeBackAtEnd(Sequence& sequence) {
  if (sequence.away_pages() == 0 || !sequence.lease().published_before_parting() || !tier_->IsOpen()) return;
  const MemoryNeed need = admission_.Need();
  if (need.free_pages - need.wanted.running < sequence.away_pages()) return;
  if (tier_->Return(*sequence.away(), sequence.lease())) sequence.SetAway(nullptr);
}

bool Residents::MayBeAway(const Sequence& sequence) const {
  // What is exported is copied from its own pages.
  const bool exports = sequence.live_export() != nullptr;
  return sequence.view() == nullptr && !exports && !sequence.request().speculation.compressor.empty();
}

bool Residents::MayLeave(const Sequence& sequence) const {
  return sequence.state() == SequenceState::kDecode && MayBeAway(sequence) && !sequence.paused();
}

ResidentView Residents::ViewOf(Sequence& sequence) const {
  const int32_t away = sequence.away_pages();
  const bool decodes = sequence.state() == SequenceState::kDecode;  // Before that it has no use for all of it.
  const int32_t whole = sequence.computed() / kernels::kPageTokens - away;
  return {.id = sequence.id(),
          .may_leave = away == 0 && MayLeave(sequence),
          .leaving = sequence.away() != nullptr && away == 0 && decodes,
          .drafts = speculator_.ViewTokens(sequence) > 0,
          .gives = std::min(whole, sequence.own_pages(cache_.memory().pages())),
          .away = sequence.round().stream != nullptr || !decodes ? 0 : away};
}

SlowTierStats Residents::stats() const {
  if (tier_ == nullptr) return {};
  SlowTierStats stats = tier_->stats();
  stats.staggered = rounds_.on() ? 1 : 0;
  stats.gain = rounds_.choice().gain;
  stats.drafted_beside_streams = rounds_.drafted_beside_streams();
  stats.away =
      std::count_if(live_.begin(), live_.end(), [](const auto& entry) { return entry.second->away_pages() > 0; });
  return stats;
}

}  // namespace invar::engine
