// From those who are away to a step of their rounds.
#include "engine/loop/rounds.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace invar::engine {
namespace {

// Tokens that a draft grows by in a step: few enough that nobody's next token waits long for the drafts of others.
constexpr int32_t kDraftTokensAtOnce = 8;
// Steps between two looks at what pays.
constexpr int64_t kChooseEvery = 16;

// Of the time, steps of plain decoding take so much: what they take is half of what the gain is, and what they lose is
// less than half of what they take.
constexpr int64_t kPlainStepShare = 64;
// Rounds between two of them at least, whatever time does.
constexpr int64_t kRoundsBetween = 4;
// At first, so that a stall of the machine does not say it all.
constexpr int64_t kPlainStepsFirst = 8;

bool DraftsOnViews(const Sequence& sequence) { return !sequence.request().speculation.compressor.empty(); }

}  // namespace

bool Rounds::GoOn(const bool alone) {
  if (tier_ == nullptr) return false;
  tier_->ReadBeside();
  // A try is one round.
  if (steps_++ % kChooseEvery == 0 || draft_tries_.under_way()) Choose();
  Collect();
  const bool others_ran = std::exchange(others_ran_, false);
  const bool prompts_run = StreamPrompts();
  if (rounds_.empty()) return prompts_run;
  if (!on() && !alone && others_ran) return EndOpenRounds();
  steps_plainly_ = alone && StepPlainly();
  if (steps_plainly_) return true;
  const StaggerStep step = Plan();
  for (const int64_t id : step.stream) BeginStream(live_.Find(SequenceId(id)));
  Draft(step.draft);
  for (const int64_t id : step.verify) live_.Find(SequenceId(id)).SetStandsAside(false);
  verifies_ += std::ssize(step.stream);
  if (!step.verify.empty() || !going_.empty() || !alone || prompts_run) return true;
  // Nothing is left but to wait for the link, and a forward waits as well as anybody.
  for (const RoundView& round : rounds_) {
    Sequence& sequence = live_.Find(SequenceId(round.id));
    if (sequence.round().stream != nullptr) sequence.SetStandsAside(false);
  }
  return true;
}

void Rounds::BeginStream(Sequence& sequence) {
  const AwayKv& away = *sequence.away();
  sequence.round().stream = tier_->Stream(away, tier_->staging_bytes() / streams_max());
  sequence.AddStreamed(away.PartBytes(0) * static_cast<int64_t>(away.parts().layers));
}

// The next chunk of a prompt reads those before it that are away. Nothing of it waits for a turn: its forward takes
// many times what its stream does.
bool Rounds::StreamPrompts() {
  bool any = false;
  for (const auto& [id, sequence] : live_) {
    if (sequence->state() != SequenceState::kPrefill || sequence->away_pages() == 0 || sequence->paused()) continue;
    if (sequence->round().stream == nullptr) BeginStream(*sequence);
    any = true;
  }
  return any;
}

// Rounds do not pay, and others get on: who is away waits for room to come back, as in the queue. A stream that has
// begun is used.
bool Rounds::EndOpenRounds() {
  bool any = false;
  for (const RoundView& round : rounds_) {
    if (round.phase != RoundPhase::kFetching && round.phase != RoundPhase::kFetched) continue;
    live_.Find(SequenceId(round.id)).SetStandsAside(false);
    any = true;
  }
  return any;
}

// Between two rounds of all, now and then: a token of as many as plain decoding would run beside each other. Nobody
// else may be at anything, so that the step takes what theirs would.
bool Rounds::StepPlainly() {
  if (!on() || choice_.plain_residents == 0 || std::ssize(rounds_) < choice_.plain_residents) return false;
  if (plain_steps_ >= kPlainStepsFirst && (clock_.Now() < next_plain_ || verifies_ < next_plain_verify_)) return false;
  if (std::any_of(rounds_.begin(), rounds_.end(),
                  [](const RoundView& r) { return r.phase != RoundPhase::kDraft || r.drafted > 0; }))
    return false;
  // Another time others.
  for (int32_t i = 0; i < choice_.plain_residents; ++i) {
    Sequence& sequence = live_.Find(SequenceId(rounds_[static_cast<size_t>(plain_steps_ + i) % rounds_.size()].id));
    BeginStream(sequence);
    sequence.SetStandsAside(false);
  }
  ++plain_steps_;
  next_plain_verify_ = verifies_ + kRoundsBetween * std::ssize(rounds_);
  return true;
}

// Whoever decodes on what is away waits, unless it is said otherwise.
void Rounds::Collect() {
  rounds_.clear();
  for (const auto& [id, sequence] : live_) {
    sequence->SetStandsAside(false);
    if (sequence->away_pages() == 0 || sequence->state() == SequenceState::kPrefill) continue;
    sequence->SetStandsAside(true);
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
  // Where rounds do not pay, those who are still away decode on what streams by.
  view.draft_min = std::min(most, told.value_or(on() ? choice_.draft_min : 0));
  view.draft_max = std::max(view.draft_min, std::min(most, told.value_or(on() ? choice_.draft_max : 0)));
  if (round.draft_ended || speculator_.ViewTokens(sequence) == 0) view.draft_min = view.draft_max = drafted;
  return view;
}

// Who joins the queue may be served at once. Streams of rounds that go together wait for each other's, so that one
// forward verifies all.
StaggerStep Rounds::Plan() {
  const auto plan = [this] {
    const auto open = std::count_if(rounds_.begin(), rounds_.end(), [](const RoundView& round) {
      return round.phase == RoundPhase::kFetching || round.phase == RoundPhase::kFetched;
    });
    return PlanStagger(
        rounds_, tier_->LinkIsIdle(), static_cast<int32_t>(open),
        {.synchronous = together(), .streams_max = streams_max(), .streams_at_once = together() ? streams_max() : 1});
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
    if (size < going.most) live_.Find(going.sequence->id()).round().draft_ended = true;
    after += size;
  }
  const bool beside = std::any_of(rounds_.begin(), rounds_.end(), [](const RoundView& round) {
    return round.phase == RoundPhase::kFetching || round.phase == RoundPhase::kFetched;
  });
  if (beside) drafted_beside_streams_ += after - before;
}

// As many as staging memory holds two layers of, and a forward has rows for where they go together.
int32_t Rounds::streams_max() const {
  int64_t most = 1;
  for (const auto& [id, sequence] : live_) {
    if (sequence->away_pages() > 0) most = std::max(most, tier_->LeastStagingBytes(*sequence->away()));
  }
  const int32_t limit =
      together() ? std::max(1, options_.rows_max / (choice_.draft_max + 1)) : StaggerLimits{}.streams_max;
  return static_cast<int32_t>(std::clamp<int64_t>(tier_->staging_bytes() / most, 1, limit));
}

// --- What rounds are worth ---

TimeNs Rounds::StepTook(const std::span<const Span> spans, const TimeNs took) {
  if (tier_ == nullptr) return 0;
  const SlowTierStats now = tier_->stats();
  const TimeNs waited = now.stall_ns - seen_.stall_ns;
  others_ran_ = std::any_of(spans.begin(), spans.end(), [this](const Span& span) {
    const Sequence* const sequence = live_.FindOrNull(span.sequence);
    return sequence == nullptr || sequence->away_pages() == 0;
  });
  ForwardWork work;
  bool decodes = !spans.empty();
  for (const Span& span : spans) {
    decodes = decodes && span.length - span.drafted == 1;
    work.rows += span.length;
    work.positions += span.length * (span.first + (span.length + 1) / 2.0);
    work.kv_positions += span.first + span.length;
  }
  // Rows of prompts are cheaper, many as they are, and would say nothing of those here.
  const Speculator::ViewCosts& costs = speculator_.view_costs();
  const int64_t accepted = speculator_.stats().accepted_tokens;
  if (decodes) {
    rates_.StepTook(work, took - waited);
    const bool is_plain = work.rows == static_cast<double>(spans.size());
    if (is_plain && (steps_plainly_ || !on())) {
      rates_.PlainStepTook(work, took - waited);
      next_plain_ = clock_.Now() + kPlainStepShare * took;
    }
    rates_.Waited(now.streamed_bytes - seen_.streamed_bytes, waited);
    const bool as_chosen = on() && !steps_plainly_ && !others_ran_ && !draft_tries_.under_way() &&
                           std::ssize(rounds_) == choice_.residents;
    const TimeNs on_views = costs.drafted_ns - seen_costs_.drafted_ns + costs.followed_ns - seen_costs_.followed_ns;
    if (as_chosen) rates_.RoundsGave(std::ssize(spans) + accepted - seen_accepted_, took + on_views);
  }
  seen_accepted_ = accepted;
  rates_.Streamed(now.streamed_bytes - seen_.streamed_bytes, now.read_ns - seen_.read_ns);
  rates_.MovedOut(now.written_bytes - seen_.written_bytes, now.write_ns - seen_.write_ns);
  seen_ = now;
  const ForwardWork& all = costs.drafted;
  const ForwardWork& known = seen_costs_.drafted;
  if (all.forwards > known.forwards) {
    rates_.DraftsTook({.forwards = all.forwards - known.forwards,
                       .rows = all.rows - known.rows,
                       .positions = all.positions - known.positions,
                       .kv_positions = all.kv_positions - known.kv_positions},
                      costs.drafted_ns - seen_costs_.drafted_ns);
  }
  rates_.ViewsMade(costs.made_tokens - seen_costs_.made_tokens, costs.made_ns - seen_costs_.made_ns);
  seen_costs_ = costs;
  return waited;
}

RoundDemand Rounds::Demand() const {
  // One wrong guess in a first verify says next to nothing: nothing is known before a few.
  RoundDemand demand{.tried = verifies_ >= RoundProbes::kVerifies,
                     .may_stay = !options_.eager,
                     .budget_bytes = options_.budget_bytes,
                     .views_bytes_max = options_.draft_memory_bytes,
                     .working_pages = options_.working_pages};
  double acceptance = 0.0;
  for (const auto& [id, sequence] : live_) {
    if (!DraftsOnViews(*sequence)) {
      demand.other_pages += sequence->pages();
      continue;
    }
    ++demand.requests;
    demand.away += sequence->away_pages() > 0 && sequence->state() == SequenceState::kDecode ? 1 : 0;
    demand.tokens += static_cast<int64_t>(sequence->tokens().size());
    demand.output_tokens += sequence->output_tokens() + sequence->output_left();
    demand.viewed_tokens += speculator_.ViewTokens(*sequence);
    acceptance += speculator_.acceptance(*sequence);
  }
  demand.acceptance = acceptance / std::max(1, demand.requests);
  demand.view_bytes = speculator_.stats().drafter_bytes;
  return demand;
}

void Rounds::Choose() {
  const RoundDemand demand = Demand();
  const VerifyLimits verify{.rows = options_.rows_max,
                            .staging_bytes = tier_->reads_in_place() ? INT64_MAX : tier_->staging_bytes()};
  choice_ = rates_.Choose(demand, options_.limits, verify);
  if (!rates_.known() || !demand.tried || demand.requests == 0 || choice_.all_fit) return;
  // One more than decode plainly, so that somebody has to move out for it.
  if (probes_.Look(on(), verifies_, clock_.Now())) {
    choice_.mode = DecodeMode::kStaggered;
    ++choice_.residents;
  }
  if (draft_tries_.Look(!on() || choice_.draft_max > 0, std::ssize(rounds_), verifies_, clock_.Now())) {
    choice_.draft_min = choice_.draft_max = std::min(TierRates::kFirstDraft, options_.limits.draft_max);
  }
}

}  // namespace invar::engine
