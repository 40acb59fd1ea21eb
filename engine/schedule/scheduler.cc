// The planning of scheduler.h: decisions are collected in a Planner, the step is read out at the end.
#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace invar::engine {
namespace {

bool Outranks(const SequenceView& a, const SequenceView& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.arrival < b.arrival;
}

struct Candidate {
  SequenceView view;
  int32_t pages = 0;  // Held after this step.
  int32_t spare = 0;  // Kept free for it.
  bool admitted = false;
  bool preempted = false;
  std::optional<Span> span = std::nullopt;

  bool live() const { return !preempted; }
  int32_t freed_pages() const { return view.own_pages + pages - view.pages + spare; }
};

// Of those not taken whose turn comes first: priority, then the least served tenant, then age.
std::optional<size_t> FirstOf(const std::vector<SequenceView>& waiting, const std::vector<bool>& taken,
                              const std::vector<int64_t>& served) {
  const auto goes_first = [&](const SequenceView& a, const SequenceView& b) {
    if (a.priority != b.priority) return a.priority > b.priority;
    if (served[a.tenant] != served[b.tenant]) return served[a.tenant] < served[b.tenant];
    return a.arrival < b.arrival;
  };
  std::optional<size_t> best;
  for (size_t i = 0; i < waiting.size(); ++i) {
    if (taken[i] || waiting[i].paused) continue;
    if (!best.has_value() || goes_first(waiting[i], waiting[*best])) best = i;
  }
  return best;
}

int32_t PagesFor(const int32_t tokens, const SchedulerLimits& limits) {
  return (tokens + limits.page_tokens - 1) / limits.page_tokens;
}
// That it holds once its known tokens are computed.
int32_t PagesAtMost(const SequenceView& view, const SchedulerLimits& limits) {
  return std::min(PagesFor(view.total - view.saved_tokens, limits), view.pages_max);
}

class Planner {
 public:
  Planner(const Snapshot& snapshot, const SchedulerLimits& limits)
      : snapshot_(snapshot),
        limits_(limits),
        free_pages_(snapshot.free_pages),
        free_slots_(snapshot.free_slots),
        tokens_left_(limits.max_batch_tokens),
        rows_left_(limits.max_logits_rows),
        log_rows_left_(limits.max_log_rows),
        running_count_(static_cast<int32_t>(snapshot.running.size())),
        served_(snapshot.tenant_served),
        taken_(snapshot.waiting.size(), false) {
    for (const SequenceView& view : snapshot.running) candidates_.push_back({.view = view, .pages = view.pages});
    SortByRank();
  }

  Step Run() {
    Admit();
    SortByRank();
    RunSpans(/*decode=*/true);
    RunSpans(/*decode=*/false);
    AddDrafts();
    return ReadOut();
  }

 private:
  void SortByRank() {
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return Outranks(a.view, b.view); });
  }
  int32_t PagesFor(const int32_t tokens) const { return engine::PagesFor(tokens, limits_); }

  // --- Admission ---
  void Admit() {
    while (const std::optional<size_t> next = NextWaiting()) {
      const SequenceView& view = snapshot_.waiting[*next];
      if (!MakeRoomFor(view)) return;
      taken_[*next] = true;
      served_[view.tenant] += view.total;
      --free_slots_;
      ++running_count_;
      candidates_.push_back({.view = view, .pages = view.shared_pages, .admitted = true});
    }
  }

  std::optional<size_t> NextWaiting() const { return FirstOf(snapshot_.waiting, taken_, served_); }

  // Preempts only where that makes `view` fit.
  bool MakeRoomFor(const SequenceView& view) {
    const int32_t wanted = PagesAtMost(view, limits_);
    int32_t pages = free_pages_ - Promised();
    int32_t slots = std::min(free_slots_, limits_.max_running - running_count_);
    if (pages >= wanted - view.shared_pages && slots >= 1) return true;
    // Whoever is preempted may be the one it would have shared with, so from here on it needs all of its pages.
    std::vector<Candidate*> victims;
    for (auto it = candidates_.rbegin(); it != candidates_.rend() && (pages < wanted || slots < 1); ++it) {
      const bool may_take = it->view.yields || it->view.priority < view.priority;
      if (!it->live() || it->admitted || !may_take) continue;
      victims.push_back(&*it);
      pages += it->freed_pages() + StillNeeded(*it);
      ++slots;
    }
    if (pages < wanted || slots < 1) return false;
    for (Candidate* const victim : victims) Preempt(*victim);
    return true;
  }

  // Pages running sequences still take to have their known tokens computed: not for newcomers.
  int32_t Promised() const {
    int32_t pages = 0;
    for (const Candidate& candidate : candidates_) {
      if (candidate.live()) pages += StillNeeded(candidate);
    }
    return pages;
  }
  int32_t StillNeeded(const Candidate& candidate) const {
    return std::max(0, PagesAtMost(candidate.view, limits_) - candidate.pages);
  }

  // --- Spans ---
  void RunSpans(const bool decode) {
    for (Candidate& candidate : candidates_) {
      if (tokens_left_ == 0) return;
      const SequenceView& view = candidate.view;
      if (!candidate.live() || view.paused || view.stands_aside || (view.total - view.computed == 1) != decode)
        continue;
      AddSpan(candidate);
    }
  }

  void AddSpan(Candidate& candidate) {
    const SequenceView& view = candidate.view;
    const int32_t unscored = std::max(0, view.logits_from - view.computed);  // Run without a row each.
    int32_t length = std::min({std::min(view.total, view.span_end) - view.computed, limits_.prefill_chunk_tokens,
                               tokens_left_, unscored + rows_left_});
    if (length == 0) return;
    while (RoomIn(candidate) <= 0) {
      Candidate* const victim = VictimFor(view);
      if (victim == nullptr) return;
      Preempt(*victim);
    }
    length = std::min(length, RoomIn(candidate));
    const int32_t pages = std::max(candidate.pages, PagesFor(view.computed + length - view.saved_tokens));
    candidate.spare = SpareFor(candidate);
    free_pages_ -= pages - candidate.pages + candidate.spare;
    candidate.pages = pages;
    candidate.span = Span{view.id, view.computed, length, std::max(0, length - unscored)};
    tokens_left_ -= length;
    rows_left_ -= candidate.span->logits_rows;
  }

  // --- Drafts ---
  void AddDrafts() {
    for (Candidate& candidate : candidates_) {
      if (candidate.span.has_value() && candidate.view.drafted > 0) AddDraft(candidate);
    }
  }

  // Behind a decode span, which has its own token, row and page.
  void AddDraft(Candidate& candidate) {
    const SequenceView& view = candidate.view;
    Check(view.total - view.computed == 1, "only the last known token is followed by a draft", view.id);
    const int32_t spare_pages = std::max(0, free_pages_ - (running_count_ - 1));
    const int32_t drafted =
        std::min({view.drafted, tokens_left_, rows_left_, log_rows_left_ - limits_.log_head_rows - 1,
                  Room(view, candidate.pages + spare_pages) - 1});
    if (drafted <= 0) return;
    Span& span = *candidate.span;
    span.length += drafted;
    span.logits_rows += drafted;
    span.drafted = drafted;
    tokens_left_ -= drafted;
    rows_left_ -= drafted;
    log_rows_left_ -= limits_.log_head_rows + span.length;
    const int32_t pages = std::max(candidate.pages, PagesFor(view.computed + span.length - view.saved_tokens));
    free_pages_ -= pages - candidate.pages;
    candidate.pages = pages;
  }

  // Positions beyond the computed ones in so many pages.
  int32_t Room(const SequenceView& view, const int32_t pages) const {
    const int64_t room = int64_t{pages} * limits_.page_tokens - (view.computed - view.saved_tokens);
    return static_cast<int32_t>(std::min<int64_t>(room, INT32_MAX));
  }
  // In the pages it holds and those that are free; none where what it must find free is not.
  int32_t RoomIn(const Candidate& candidate) const {
    const int32_t free = free_pages_ - SpareFor(candidate);
    return free < 0 ? 0 : Room(candidate.view, candidate.pages + free);
  }
  // What it shares it shares with somebody who is still here.
  int32_t SpareFor(const Candidate& needy) const {
    if (!needy.view.parts) return needy.view.spare_pages;
    int32_t of_others = 0;
    for (const Candidate& candidate : candidates_) {
      if (candidate.live() && candidate.view.id != needy.view.id) of_others += candidate.pages;
    }
    return needy.view.spare_pages + std::min(needy.view.shared_pages, of_others);
  }

  // Whose pages `needy` may take: a paused one's, else the lowest-ranked below itself.
  Candidate* VictimFor(const SequenceView& needy) {
    Candidate* victim = nullptr;
    for (Candidate& candidate : candidates_) {  // Best rank first, so the last that qualifies is the lowest.
      if (!candidate.live() || candidate.admitted || candidate.pages == 0 || candidate.view.id == needy.id) continue;
      if (!candidate.view.paused && !Outranks(needy, candidate.view)) continue;
      if (victim == nullptr || candidate.view.paused || !victim->view.paused) victim = &candidate;
    }
    return victim;
  }

  void Preempt(Candidate& victim) {
    victim.preempted = true;
    free_pages_ += victim.freed_pages();
    ++free_slots_;
    --running_count_;
    if (!victim.span.has_value()) return;
    tokens_left_ += victim.span->length;
    rows_left_ += victim.span->logits_rows;
    victim.span.reset();
  }

  Step ReadOut() const {
    Step step;
    for (const Candidate& candidate : candidates_) {
      if (candidate.preempted) step.preempt.push_back(candidate.view.id);
      if (candidate.admitted) step.admit.push_back(candidate.view.id);
      if (candidate.span.has_value()) step.spans.push_back(*candidate.span);
    }
    return step;
  }

  const Snapshot& snapshot_;
  const SchedulerLimits& limits_;
  int32_t free_pages_;
  int32_t free_slots_;
  int32_t tokens_left_;
  int32_t rows_left_;
  int32_t log_rows_left_;
  int32_t running_count_;
  std::vector<int64_t> served_;
  std::vector<bool> taken_;  // Of waiting.
  std::vector<Candidate> candidates_;
};

}  // namespace

std::optional<size_t> NextWaiting(const Snapshot& snapshot) {
  return FirstOf(snapshot.waiting, std::vector<bool>(snapshot.waiting.size(), false), snapshot.tenant_served);
}

PagesWanted FindPagesWanted(const Snapshot& snapshot, const SchedulerLimits& limits) {
  PagesWanted wanted;
  for (const SequenceView& view : snapshot.running) {
    wanted.running += 1 + std::max(0, PagesAtMost(view, limits) - view.pages);
  }
  const bool has_place = snapshot.free_slots > 0 && static_cast<int32_t>(snapshot.running.size()) < limits.max_running;
  if (const std::optional<size_t> next = NextWaiting(snapshot); has_place && next.has_value()) {
    const SequenceView& view = snapshot.waiting[*next];
    wanted.next = PagesAtMost(view, limits) - view.shared_pages;
  }
  return wanted;
}

Step Plan(const Snapshot& snapshot, const SchedulerLimits& limits) {
  Check(limits.max_batch_tokens >= 1 && limits.max_logits_rows >= 1 && limits.prefill_chunk_tokens >= 1,
        "a step has room for a token");
  return Planner(snapshot, limits).Run();
}

}  // namespace invar::engine
