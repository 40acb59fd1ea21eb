// Rounds: the sequences whose full KV is away, between drafting and verifying. Asks PlanStagger() who drafts, whose KV
// is streamed and who verifies in the next forward, and does it; learns what rounds take and give, so that TierRates
// says whether they pay here, how long drafts are, and how many requests share the link.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/loop/live_sequences.h"
#include "engine/loop/sequence.h"
#include "engine/schedule/step.h"
#include "engine/slow/slow_tier.h"
#include "engine/speculate/mode.h"
#include "engine/speculate/round_probes.h"
#include "engine/speculate/speculator.h"
#include "engine/speculate/stagger.h"
#include "engine/speculate/tier_rates.h"

namespace invar::engine {

class Rounds {
 public:
  struct Options {
    bool synchronous = false;
    bool eager = false;  // Tests: requests move out also where the fast tier holds all.
    ModeLimits limits;
    int32_t rows_max = 1;            // Of a forward, with logits.
    int64_t budget_bytes = 0;        // Of the fast tier.
    int64_t draft_memory_bytes = 0;  // Of these, at most so much for views.
    int32_t working_pages = 1;       // Of a prompt that moves out as it is run.
  };
  // `tier` may be null: nobody is ever away. Requires: references outlive this.
  Rounds(SlowTier* tier, const Options& options, const models::ModelSpec& spec, LiveSequences& live,
         Speculator& speculator, const Clock& clock)
      : tier_(tier), options_(options), live_(live), speculator_(speculator), clock_(clock), rates_(spec) {
    choice_ = rates_.Choose({}, options_.limits, {});
  }

  // Before the plan of a step, `alone` where nobody but those who are away has work. Effects: drafts, begins streams;
  // those without a verify in this step wait. True: a step follows in any case.
  bool GoOn(bool alone);
  // A step has run. Gives what of `took` went by waiting for streams.
  TimeNs StepTook(std::span<const Span> spans, TimeNs took);

  const ModeChoice& choice() const { return choice_; }
  // Whether sequences may move out: rounds pay, or are tried.
  bool on() const { return choice_.mode == DecodeMode::kStaggered; }
  // Tokens drafted while a stream was on its way.
  int64_t drafted_beside_streams() const { return drafted_beside_streams_; }

 private:
  void Choose();
  RoundDemand Demand() const;
  bool together() const { return options_.synchronous || choice_.together; }
  bool EndOpenRounds();
  bool StepPlainly();
  void Collect();
  bool StreamPrompts();
  void BeginStream(Sequence& sequence);
  RoundView ViewOf(const Sequence& sequence) const;
  StaggerStep Plan();
  void Draft(std::span<const int64_t> ids);
  int32_t streams_max() const;

  // Set at construction.
  SlowTier* const tier_;
  const Options options_;
  LiveSequences& live_;
  Speculator& speculator_;
  const Clock& clock_;

  TierRates rates_;
  RoundProbes probes_;
  DraftTries draft_tries_;
  ModeChoice choice_{};  // Of the last look.
  int64_t steps_ = 0;
  int64_t plain_steps_ = 0;  // Of those who are away, to see what plain decoding takes.
  TimeNs next_plain_ = 0;
  int64_t next_plain_verify_ = 0;
  bool steps_plainly_ = false;  // In the step under way.
  int64_t verifies_ = 0;
  bool others_ran_ = false;  // In the last step: somebody who is not away.
  // What the rates know of.
  SlowTierStats seen_;
  Speculator::ViewCosts seen_costs_;
  int64_t seen_accepted_ = 0;
  int64_t queued_ = 0;
  int64_t drafted_beside_streams_ = 0;
  // Of the step under way, kept for their memory.
  std::vector<RoundView> rounds_;
  std::vector<Speculator::Going> going_;
};

}  // namespace invar::engine
