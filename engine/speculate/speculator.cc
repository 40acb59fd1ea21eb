// The rounds of speculator.h.
#include "engine/speculate/speculator.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "cache/compressor.h"

namespace invar::engine {
namespace {

bool Asks(const SpeculatedSequence& sequence) { return !sequence.request().speculation.drafter.empty(); }
bool DraftsOnView(const SpeculatedSequence& sequence) { return !sequence.request().speculation.compressor.empty(); }

}  // namespace

Speculator::Speculator(const std::span<const DrafterKind> kinds, const DrafterSetting& setting,
                       const int32_t draft_tokens_max, const kernels::RowSampler& rows, const int32_t usable_ids,
                       const Clock& clock)
    : draft_tokens_max_(draft_tokens_max), rows_(rows), usable_ids_(usable_ids), clock_(clock) {
  for (const DrafterKind& kind : kinds) {
    if (kind.why_not && !kind.why_not(setting.model.spec()).empty()) continue;
    drafters_[kind.name].drafter = kind.make(setting);
  }
}

Speculator::Drafting& Speculator::DraftingOf(const std::string& name) {
  const auto found = drafters_.find(name);
  Check(found != drafters_.end(), "a request's drafter is there", name);
  return found->second;
}

void Speculator::Propose(const std::span<SpeculatedSequence* const> sequences) {
  if (std::none_of(sequences.begin(), sequences.end(), [](const SpeculatedSequence* s) { return Asks(*s); })) return;
  for (auto& [name, drafting] : drafters_) drafting.tries = false;
  std::vector<DraftWish> wishes(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (Asks(*sequences[i])) wishes[i] = WishOf(*sequences[i], static_cast<int32_t>(sequences.size()));
  }
  ChooseLengths(times_, wishes);
  Fill(sequences, wishes);
}

DraftWish Speculator::WishOf(const SpeculatedSequence& sequence, const int32_t sequences) {
  Speculating& live = live_[sequence.id()];
  Drafting& drafting = DraftingOf(sequence.request().speculation.drafter);
  DraftWish wish;
  // The last token that it may generate needs no row behind it.
  wish.most = std::min(draft_tokens_max_, sequence.output_left() - 1);
  // A draft that found no place in the last step is there already.
  wish.fixed = sequence.draft().empty() ? sequence.request().speculation.draft_tokens.value_or(0)
                                        : static_cast<int32_t>(sequence.draft().size());
  wish.acceptance = live.record.acceptance();
  wish.credit = live.record.credit();
  wish.draft_s = drafting.draft_s;
  live.row_cost = RowCost(times_, sequences, wish.draft_s);
  if (wish.fixed == 0 && !drafting.drafter->IsReady(sequence.id())) {
    // Of drafts on a view nobody knows as much as those who had one.
    if (live.report.rounds == 0) wish.acceptance = drafting.view.acceptance();
    if (!MayMakeView(sequence, sequences, wish.most)) wish.most = 0;
  }
  return wish;
}

// At most one try a step: what it takes is known only then.
bool Speculator::MayMakeView(const SpeculatedSequence& sequence, const int32_t sequences, const int32_t most) {
  Drafting& drafting = DraftingOf(sequence.request().speculation.drafter);
  const ViewWorth::Answer answer = drafting.view.Ask(
      times_, sequences, drafting.draft_s,
      {.tokens = static_cast<int32_t>(sequence.tokens().size()), .output_left = sequence.output_left(), .most = most});
  const bool is_try = answer == ViewWorth::Answer::kTry;
  if (answer == ViewWorth::Answer::kNo || (is_try && drafting.tries)) return false;
  live_[sequence.id()].tries_view = is_try;
  drafting.tries = drafting.tries || is_try;
  return true;
}

void Speculator::Fill(const std::span<SpeculatedSequence* const> sequences, const std::span<const DraftWish> wishes) {
  Turns turns(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    SpeculatedSequence& sequence = *sequences[i];
    if (!Asks(sequence) || !sequence.draft().empty()) continue;
    const bool wanted = wishes[i].length > 0;
    live_[sequence.id()].reason = wanted ? FallbackReason::kNothingDrafted : FallbackReason::kUnprofitable;
    if (wanted) Add(sequence, wishes[i].length, turns);
  }
  AskAll(turns, static_cast<int32_t>(sequences.size()));
}

void Speculator::GoOn(const std::span<const Going> rounds) {
  Turns turns(rounds.size());
  for (const Going& round : rounds) {
    SpeculatedSequence& sequence = *round.sequence;
    live_[sequence.id()].reason = FallbackReason::kNothingDrafted;
    live_[sequence.id()].row_cost = 0.0;  // Its rows are the round's, which is weighed as a whole.
    DraftTurn& turn = Add(sequence, round.most, turns);
    turn.room = round.room;
    for (const TokenId token : sequence.draft()) turn.sampler->Take(token);
    turn.draft.assign(sequence.draft().begin(), sequence.draft().end());
  }
  AskAll(turns, static_cast<int32_t>(rounds.size()));
  // Who has drafted and is not asked again goes without because it does not pay.
  for (const Going& round : rounds) {
    if (!round.sequence->draft().empty()) live_[round.sequence->id()].reason = FallbackReason::kUnprofitable;
  }
}

StatusOr<bool> Speculator::MakeViewReady(SpeculatedSequence& sequence) {
  if (!DraftsOnView(sequence) || sequence.computed() == 0) return false;
  if (DraftsWithoutFullKv(sequence)) return true;
  Turns turns(1);
  DraftTurn& turn = Add(sequence, draft_tokens_max_, turns);
  turn.away = sequence.away();
  view_costs_.followed_ns += Prepare(DraftingOf(sequence.request().speculation.drafter), turn, /*sequences=*/1);
  if (!turn.failure.ok()) return turn.failure;
  return DraftsWithoutFullKv(sequence);
}

void Speculator::DropView(const SpeculatedSequence& sequence) {
  if (ViewTokens(sequence) > 0) DraftingOf(sequence.request().speculation.drafter).drafter->Forget(sequence.id());
}

DraftTurn& Speculator::Add(SpeculatedSequence& sequence, const int32_t most, Turns& turns) {
  turns.sequences[sequence.id()] = &sequence;
  turns.samplers.push_back(SamplerOf(sequence));
  const Request::Speculation& wish = sequence.request().speculation;
  return turns.of[wish.drafter].emplace_back(DraftTurn{.id = sequence.id(),
                                                       .tokens = sequence.tokens(),
                                                       .pages = sequence.page_ids(),
                                                       .away_pages = sequence.away_pages(),
                                                       .state = sequence.slot(),
                                                       .most = most,
                                                       .compressor = wish.compressor,
                                                       .kv_budget = wish.kv_budget,
                                                       .offers = wish.offers.get(),
                                                       .sampler = &turns.samplers.back(),
                                                       .draft = {}});
}

void Speculator::AskAll(Turns& turns, const int32_t sequences) {
  for (auto& [name, of_one] : turns.of) {
    Ask(DraftingOf(std::string(name)), of_one, sequences);
    for (DraftTurn& turn : of_one) {
      Check(static_cast<int32_t>(turn.draft.size()) <= turn.most, "no more is drafted than was asked for", turn.most);
      if (turn.no_memory) live_[turn.id].reason = FallbackReason::kNoDraftMemory;
      turns.sequences[turn.id]->SetDraft(std::move(turn.draft));
    }
  }
}

DraftSampler Speculator::SamplerOf(const SpeculatedSequence& sequence) {
  return DraftSampler({.rows = rows_,
                       .sampling = sequence.request().sampling,
                       .stopping = sequence.request().stopping,
                       .counts = sequence.counts(),
                       .output_tokens = sequence.output_tokens(),
                       .position = Position(static_cast<int32_t>(sequence.tokens().size())),
                       .usable_ids = usable_ids_,
                       .scratch = scratch_});
}

void Speculator::Ask(Drafting& drafting, const std::span<DraftTurn> turns, const int32_t sequences) {
  constexpr double kNewer = 0.1;  // Of the average.
  TimeNs took = 0;
  std::vector<int32_t> before;
  for (const DraftTurn& turn : turns) before.push_back(static_cast<int32_t>(turn.draft.size()));
  for (DraftTurn& turn : turns) took += Prepare(drafting, turn, sequences);
  const TimeNs begin = clock_.Now();
  drafting.drafter->Propose(turns);
  took += clock_.Now() - begin;
  int32_t drafted = 0;
  int32_t forwards = 0;
  for (size_t i = 0; i < turns.size(); ++i) {
    const int32_t more = static_cast<int32_t>(turns[i].draft.size()) - before[i];
    drafted += more;
    forwards = std::max(forwards, more);
    if (turns[i].compressor.empty()) continue;
    const auto positions = static_cast<double>(more) * static_cast<double>(turns[i].tokens.size() + before[i]);
    view_costs_.drafted.rows += more;
    view_costs_.drafted.positions += positions;
    view_costs_.drafted.kv_positions += positions;
  }
  if (drafted == 0) return;
  if (!turns[0].compressor.empty()) {
    view_costs_.drafted.forwards += forwards;
    view_costs_.drafted_ns += took;
  }
  const double each = ToSeconds(took) / drafted;
  drafting.draft_s = drafting.draft_s == 0.0 ? each : (1.0 - kNewer) * drafting.draft_s + kNewer * each;
}

// What of the time belongs to the draft: all that comes again with every draft.
TimeNs Speculator::Prepare(Drafting& drafting, DraftTurn& turn, const int32_t sequences) {
  const bool ready = drafting.drafter->IsReady(turn.id);
  const TimeNs begin = clock_.Now();
  drafting.drafter->Prepare(turn);
  const TimeNs took = clock_.Now() - begin;
  stats_.prepare_ns += took;
  if (ready) return took;
  Speculating& live = live_[turn.id];
  if (drafting.drafter->IsReady(turn.id)) {
    view_costs_.made_tokens += std::ssize(turn.tokens);
    view_costs_.made_ns += took;
    drafting.view.Made(times_, sequences, ToSeconds(took), static_cast<int32_t>(turn.tokens.size()), live.tries_view);
  }
  live.tries_view = false;
  return 0;
}

void Speculator::Verified(const SpeculatedSequence& sequence, const Span& span, const int32_t right, const bool refuted,
                          const int32_t sampled) {
  const auto found = live_.find(sequence.id());
  if (found == live_.end()) return;
  Speculating& live = found->second;
  CountDropped(DropReason::kNoRoom, std::ssize(sequence.draft()) - span.drafted);
  ViewWorth& view = DraftingOf(sequence.request().speculation.drafter).view;
  for (int32_t i = 0; i < sampled; ++i) {
    live.record.Sampled();
    view.Sampled();
  }
  if (span.drafted == 0) {
    // Known tokens run again after a preemption, and the last token of an output, are no occasion to draft.
    if (span.length != 1 || sequence.output_left() == 0) return;
    // A draft that is there is one that the step had no place for.
    const FallbackReason reason = sequence.draft().empty() ? live.reason : FallbackReason::kNoRoom;
    ++live.plain_steps[static_cast<size_t>(reason)];
    ++stats_.fallbacks[static_cast<size_t>(reason)];
    return;
  }
  live.record.Verified(span.drafted, right, refuted, live.row_cost);
  view.Verified(right, refuted);
  ++live.report.rounds;
  live.report.drafted_tokens += span.drafted;
  live.report.accepted_tokens += right;
  const DropReason behind = sequence.paused() ? DropReason::kReaderBehind : DropReason::kEnded;
  CountDropped(refuted ? DropReason::kWrong : behind, span.drafted - right);
  ++stats_.rounds;
  stats_.drafted_tokens += span.drafted;
  stats_.accepted_tokens += right;
  const auto* const bound = std::lower_bound(kAcceptedBounds.begin(), kAcceptedBounds.end(), right);
  ++stats_.accepted_lengths[static_cast<size_t>(bound - kAcceptedBounds.begin())];
}

void Speculator::StepTook(const std::span<const Span> spans, const TimeNs took) {
  int32_t rows = 0;
  for (const Span& span : spans) {
    if (span.length - span.drafted != 1) return;
    rows += span.length;
  }
  if (rows > 0) times_.Observe(rows, took);
}

double Speculator::acceptance(const SpeculatedSequence& sequence) const {
  const auto found = drafters_.find(sequence.request().speculation.drafter);
  return found == drafters_.end() ? 0.0 : found->second.view.acceptance();
}

int32_t Speculator::ViewTokens(const SpeculatedSequence& sequence) const {
  const auto found = drafters_.find(sequence.request().speculation.drafter);
  return found == drafters_.end() ? 0 : found->second.drafter->ViewTokens(sequence.id());
}

int64_t Speculator::ViewBytes(const SpeculatedSequence& sequence) const {
  const Request::Speculation& wish = sequence.request().speculation;
  const auto found = drafters_.find(wish.drafter);
  if (found == drafters_.end() || wish.compressor.empty()) return 0;
  return found->second.drafter->ViewBytes(wish.compressor, wish.kv_budget,
                                          static_cast<int32_t>(sequence.tokens().size()));
}

bool Speculator::DraftsWithoutFullKv(const SpeculatedSequence& sequence) const {
  return sequence.computed() > 0 && ViewTokens(sequence) == sequence.computed();
}

SpeculationStats Speculator::stats() const {
  SpeculationStats stats = stats_;
  for (const auto& [name, drafting] : drafters_) stats.drafter_bytes += drafting.drafter->held_bytes();
  return stats;
}

std::optional<SpeculationReport> Speculator::End(const SpeculatedSequence& sequence) {
  if (!Asks(sequence)) return std::nullopt;
  Dropped(sequence);
  DraftingOf(sequence.request().speculation.drafter).drafter->Forget(sequence.id());
  const auto found = live_.find(sequence.id());
  if (found == live_.end()) return SpeculationReport{};
  SpeculationReport report = std::move(found->second.report);
  const std::string& compressor = sequence.request().speculation.compressor;
  if (report.rounds > 0 && !compressor.empty())
    report.compressor = cache::MakeCompressor(compressor).value()->provenance();
  const auto& plain = found->second.plain_steps;
  const auto* const most = std::max_element(plain.begin(), plain.end());
  if (*most > report.rounds) report.fallback_reason = NameOf(static_cast<FallbackReason>(most - plain.begin()));
  live_.erase(found);
  return report;
}

}  // namespace invar::engine
