// Speculator: lossless speculation of all sequences of an engine. Before a step it asks drafters for guesses, as many
// as pay; after it, it learns what they were worth. What a guess can do is said in drafter.h: save time, never change a
// token.
// Threads: engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"
#include "engine/schedule/step.h"
#include "engine/speculate/draft_length.h"
#include "engine/speculate/drafter.h"
#include "engine/speculate/forward_times.h"
#include "engine/speculate/speculated_sequence.h"
#include "engine/speculate/view_worth.h"
#include "engine/stats.h"
#include "kernels/sample.h"

namespace invar::engine {

class Speculator {
 public:
  // Of `kinds`, those that can draft for the model. `draft_tokens_max`: most of one draft. `rows`, `usable_ids`: as the
  // engine samples. Requires: what is referred to outlives this.
  Speculator(std::span<const DrafterKind> kinds, const DrafterSetting& setting, int32_t draft_tokens_max,
             const kernels::RowSampler& rows, int32_t usable_ids, const Clock& clock);

  // Gives drafts to those of `sequences` that ask for it and have none. Requires: all decode, with one token to run,
  // and no reader is behind.
  void Propose(std::span<SpeculatedSequence* const> sequences);
  // Of sequences whose full KV is away: drafts go on, to `most` tokens each where there is as much to guess.
  struct Going {
    SpeculatedSequence* sequence = nullptr;
    int32_t most = 0;
    int32_t room = 0;  // What the draft may yet come to.
  };
  void GoOn(std::span<const Going> rounds);
  // Makes the view that the sequence drafts on, from what is away of it too, or brings it up to date. False: it drafts
  // on none, or there is no memory for it. Errors: of reading what is away.
  StatusOr<bool> MakeViewReady(SpeculatedSequence& sequence);
  // Forgets it, where there is one: its memory is free.
  void DropView(const SpeculatedSequence& sequence);
  // A decode span has run: of its draft so many tokens were right, and `refuted` says whether one was wrong behind them
  // (otherwise the output ended or its reader fell behind first). `sampled`: tokens that came of it.
  void Verified(const SpeculatedSequence& sequence, const Span& span, int32_t right, bool refuted, int32_t sampled);
  // The sequence goes before its draft was verified.
  void Dropped(const SpeculatedSequence& sequence) { CountDropped(DropReason::kLeft, std::ssize(sequence.draft())); }
  // A step of spans that all decode took so long.
  void StepTook(std::span<const Span> spans, TimeNs took);
  // Forgets the sequence. Empty where it did not ask for speculation.
  std::optional<SpeculationReport> End(const SpeculatedSequence& sequence);

  // Chance that a token drafted on a view is right, lately; of the drafter that most of `sequence`'s kind use.
  double acceptance(const SpeculatedSequence& sequence) const;
  // Tokens that its view stands for.
  int32_t ViewTokens(const SpeculatedSequence& sequence) const;
  // That a view of all its tokens takes at least.
  int64_t ViewBytes(const SpeculatedSequence& sequence) const;
  // Whether the sequence drafts on a view of all that is computed, so that drafts do without its full KV.
  bool DraftsWithoutFullKv(const SpeculatedSequence& sequence) const;

  // What chooses a draft's tokens as the engine would, from where the sequence stands.
  DraftSampler SamplerOf(const SpeculatedSequence& sequence);

  SpeculationStats stats() const;
  // Of drafts on views; sums over all there were. Positions are those of the text.
  struct ViewCosts {
    ForwardWork drafted{.forwards = 0};
    TimeNs drafted_ns = 0;   // Upkeep included,
    TimeNs followed_ns = 0;  // but for that of views that follow by themselves (MakeViewReady).
    int64_t made_tokens = 0;
    TimeNs made_ns = 0;
  };
  const ViewCosts& view_costs() const { return view_costs_; }

 private:
  struct Speculating {
    DraftRecord record;
    SpeculationReport report;
    std::array<int64_t, kFallbackReasons> plain_steps = {};   // Without a draft, by reason.
    FallbackReason reason = FallbackReason::kNothingDrafted;  // Why it has no draft now.
    double row_cost = 0.0;                                    // Of its draft in the step under way, in tokens.
    bool tries_view = false;  // What is made for it in the step under way is not known to pay.
  };
  struct Drafting {
    std::unique_ptr<Drafter> drafter;
    double draft_s = 0.0;  // Seconds a token, of recent steps.
    ViewWorth view;        // What it makes before it drafts.
    bool tries = false;    // For one sequence of the step under way.
  };

  // Of one step, with what they point at.
  struct Turns {
    explicit Turns(const size_t most) { samplers.reserve(most); }
    std::map<std::string_view, std::vector<DraftTurn>> of;  // By drafter.
    std::map<SequenceId, SpeculatedSequence*> sequences;
    std::vector<DraftSampler> samplers;
  };

  DraftWish WishOf(const SpeculatedSequence& sequence, int32_t sequences);
  bool MayMakeView(const SpeculatedSequence& sequence, int32_t sequences, int32_t most);
  void Fill(std::span<SpeculatedSequence* const> sequences, std::span<const DraftWish> wishes);

  DraftTurn& Add(SpeculatedSequence& sequence, int32_t most, Turns& turns);
  void AskAll(Turns& turns, int32_t sequences);
  Drafting& DraftingOf(const std::string& name);
  void CountDropped(const DropReason reason, const int64_t tokens) {
    stats_.dropped_tokens[static_cast<size_t>(reason)] += tokens;
  }
  void Ask(Drafting& drafting, std::span<DraftTurn> turns, int32_t sequences);
  TimeNs Prepare(Drafting& drafting, DraftTurn& turn, int32_t sequences);

  const int32_t draft_tokens_max_;
  const kernels::RowSampler& rows_;
  const int32_t usable_ids_;
  const Clock& clock_;
  std::map<std::string, Drafting, std::less<>> drafters_;
  std::map<SequenceId, Speculating> live_;  // Those that ask for it and have decoded.
  StepTimes times_;
  SpeculationStats stats_;
  ViewCosts view_costs_;
  std::vector<float> scratch_;  // Of samplers of drafts.
};

}  // namespace invar::engine
