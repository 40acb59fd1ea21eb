// From those who are away to a step of their rounds.
#include "engine/loop/rounds.h"

#include <algorithm>
#include <optional>

namespace invar::engine {
namespace {

// Tokens that a draft grows by in a step: few enough that nobody's next token waits long for the drafts of others.
constexpr int32_t kDraftTokensAtOnce = 8;
// Steps between two looks at what pays.
constexpr int64_t kChooseEvery = 16;

bool DraftsOnViews(const Sequence& sequence) { return !sequence.request().speculation.compressor.empty(); }

}  // namespace

bool Rounds::GoOn(const bool alone) {
  if (tier_ == nullptr) return false;
  if (steps_++ % kChooseEvery == 0) Choose();
  Collect();
  if (rounds_.empty()) return false;
  const StaggerStep step = Plan();
  for (const int64_t id : step.stream) {
    Sequence& sequence = live_.Find(SequenceId(id));
    const AwayKv& away = *sequence.away();
    sequence.round().stream = tier_->Stream(away, tier_->staging_bytes() / streams_max());
    sequence.AddStreamed(away.PartBytes(0) * static_cast<int64_t>(away.parts().layers));
  }
  Draft(step.draft);
  for (const int64_t id : step.verify) live_.Find(SequenceId(id)).SetWaits(false);
  if (!step.verify.empty() || !going_.empty() || !alone) return true;
  // Nothing is left but to wait for the link, and a forward waits as well as anybody.
  for (const RoundView& round : rounds_) {
    Sequence& sequence = live_.Find(SequenceId(round.id));
    if (sequence.round().stream != nullptr) sequence.SetWaits(false);
  }
  return true;
}

// Everybody who is away waits, unless it is said otherwise.
void Rounds::Collect() {
  rounds_.clear();
  for (const auto& [id, sequence] : live_) {
    sequence->SetWaits(false);
    if (sequence->away_pages() == 0) continue;
    sequence->SetWaits(true);
    if (!sequence->paused()) rounds_.push_back(ViewOf(*sequence));
  }
}

RoundView Rounds::ViewOf(const Sequence& sequence) const {
  const Round& round = sequence.round();
  const auto drafted = static_cast<int32_t>(sequence.draft().size());
  RoundView view{.id = sequence.id().value(), .phase = round.phase(), .drafted = drafted, .queued = round.queued};
  // The last token that it may generate needs no row behind it.
  const int32_t most = std::min(options_.limits.draft_max, sequence.output_left() - 1);
  const std::optional<int32_t> told = sequence.request().speculation.draft_tokens;
  // Where rounds do not pay, those who are still away make the most of them.
  const bool pays = choice_.mode == DecodeMode::kStaggered;
  const int32_t longest = options_.limits.draft_max;
  view.draft_min = std::min(most, told.value_or(pays ? choice_.draft_min : longest));
  view.draft_max = std::max(view.draft_min, std::min(most, told.value_or(pays ? choice_.draft_max : longest)));
  if (round.draft_ended || speculator_.ViewTokens(sequence) == 0) view.draft_min = view.draft_max = drafted;
  return view;
}

// Who joins the queue may be served at once.
StaggerStep Rounds::Plan() {
  const auto plan = [this] {
    const auto open = std::count_if(rounds_.begin(), rounds_.end(), [](const RoundView& round) {
      return round.phase == RoundPhase::kFetching || round.phase == RoundPhase::kFetched;
    });
    return PlanStagger(rounds_, tier_->LinkIsIdle(), static_cast<int32_t>(open),
                       {.synchronous = options_.synchronous, .streams_max = streams_max()});
  };
  const StaggerStep step = plan();
  if (step.queue.empty()) return step;
  for (const int64_t id : step.queue) live_.Find(SequenceId(id)).round().queued = ++queued_;
  for (RoundView& round : rounds_) round = ViewOf(live_.Find(SequenceId(round.id)));
  return plan();
}

void Rounds::Draft(const std::span<const int64_t> ids) {
  going_.clear();
  int64_t before = 0;
  for (const int64_t id : ids) {
    Sequence& sequence = live_.Find(SequenceId(id));
    const RoundView view = ViewOf(sequence);
    const int32_t goal = view.drafted < view.draft_min ? view.draft_min : view.draft_max;
    if (goal > view.drafted) {
      going_.push_back({&sequence, std::min(goal, view.drafted + kDraftTokensAtOnce), view.draft_max});
      before += view.drafted;
    }
  }
  if (going_.empty()) return;
  speculator_.GoOn(going_);
  int64_t after = 0;
  for (const Speculator::Going& going : going_) {
    const auto size = static_cast<int32_t>(going.sequence->draft().size());
    if (size < going.most) going.sequence->round().draft_ended = true;
    after += size;
  }
  const bool beside = std::any_of(rounds_.begin(), rounds_.end(), [](const RoundView& round) {
    return round.phase == RoundPhase::kFetching || round.phase == RoundPhase::kFetched;
  });
  if (beside) drafted_beside_streams_ += after - before;
}

int32_t Rounds::streams_max() const {
  int64_t most = 1;
  for (const auto& [id, sequence] : live_) {
    if (sequence->away_pages() > 0) most = std::max(most, tier_->LeastStagingBytes(*sequence->away()));
  }
  return static_cast<int32_t>(std::clamp<int64_t>(tier_->staging_bytes() / most, 1, StaggerLimits{}.streams_max));
}

// --- What rounds are worth ---

TimeNs Rounds::StepTook(const std::span<const Span> spans, const TimeNs took) {
  if (tier_ == nullptr) return 0;
  int64_t rows = 0;
  int64_t positions = 0;
  for (const Span& span : spans) {
    rows += span.length;
    positions += span.length * (int64_t{span.first} + (span.length + 1) / 2);
  }
  const SlowTierStats now = tier_->stats();
  const TimeNs waited = now.stall_ns - seen_.stall_ns;
  rates_.StepTook(rows, positions, took - waited);
  rates_.Streamed(now.streamed_bytes - seen_.streamed_bytes, now.read_ns - seen_.read_ns);
  seen_ = now;
  return waited;
}

void Rounds::Choose() {
  RoundDemand demand{.kv_budget_bytes = memory_.budget_bytes(), .draft_memory_bytes = options_.draft_memory_bytes};
  double acceptance = 0.0;
  for (const auto& [id, sequence] : live_) {
    if (!DraftsOnViews(*sequence)) continue;
    ++demand.requests;
    demand.tokens += static_cast<int64_t>(sequence->tokens().size());
    demand.viewed_tokens += speculator_.ViewTokens(*sequence);
    acceptance += speculator_.acceptance(*sequence);
  }
  demand.acceptance = acceptance / std::max(1, demand.requests);
  demand.view_bytes = speculator_.stats().drafter_bytes;
  choice_ = rates_.Choose(demand, options_.limits);
}

}  // namespace invar::engine
