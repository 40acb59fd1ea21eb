// TierRates: what rounds and plain decoding really take on this machine, learned from every forward, draft, stream and
// view; and from it whether rounds pay for the requests that are there, with how many of them at once and how long
// drafts. Says of rounds
//   cycle   K drafts of m requests + their verifies + what making and moving them takes, a share of each answer
//   tokens  m E(K), E as in cost_model.h; K may be 0
// where the verifies go together, so many in a forward as there is memory for streams, or one after another while
// others draft, and a stream takes at least what its bytes take on the link. Of plain decoding: a step of as many
// requests as their full KV has room. Where nothing is known yet, rounds are tried: only they can tell. What rounds
// then give is held against what was said of them, and corrects it; steps of plain decoding alike. Pure but for what it
// remembers; no clock. Threads: engine thread only.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "engine/speculate/forward_times.h"
#include "engine/speculate/mode.h"
#include "models/model.h"

namespace invar::engine {

// Requests that want to be verified on full KV, those that wait included, and the memory there is for them.
struct RoundDemand {
  int32_t requests = 0;
  int32_t away = 0;           // Of them, with their full KV in the slow tier now: so many have room.
  int64_t tokens = 0;         // Of all of them.
  int64_t output_tokens = 0;  // That they generate in all, as far as they may.
  int64_t view_bytes = 0;     // That drafters hold, for `viewed_tokens` tokens.
  int64_t viewed_tokens = 0;
  double acceptance = 0.0;      // Of drafts on views lately.
  bool tried = true;            // So many rounds were run that what they take and give can be told.
  bool may_stay = true;         // Else requests move out also where the fast tier holds all.
  int64_t budget_bytes = 0;     // For full KV, states and views together.
  int64_t other_pages = 0;      // Of these, what other requests that run hold.
  int64_t views_bytes_max = 0;  // Of these, for views.
  int32_t working_pages = 1;    // Of a prompt that moves out as it is run.
};

// Of one forward.
struct VerifyLimits {
  int32_t rows = INT32_MAX;
  int64_t staging_bytes = INT64_MAX;  // Two layers of each request that it verifies.
  int32_t streams = INT32_MAX;
};

class TierRates {
 public:
  // While nothing is known a round is as long as to tell something, and no longer.
  static constexpr int32_t kFirstDraft = 8;

  explicit TierRates(const models::ModelSpec& spec);

  // A step of decoding and verifying, but for what it waited for streams.
  void StepTook(const ForwardWork& work, const TimeNs took) { steps_.Observe(work, ToSeconds(took)); }
  // One that plain decoding takes alike: a row of each of as many as the fast tier holds.
  void PlainStepTook(const ForwardWork& work, TimeNs took);
  // Forwards on views with all that drafts need besides; positions are those of the text.
  void DraftsTook(const ForwardWork& work, const TimeNs took) { drafts_.Observe(work, ToSeconds(took)); }
  // So many bytes were read, in so much time of reading; none where they lay in memory.
  void Streamed(int64_t bytes, TimeNs took);
  // Steps of decoding alone waited so long for streams of so many bytes.
  void Waited(int64_t bytes, TimeNs took);
  // Rounds as last chosen gave so many tokens, drafts and all in so much time.
  void RoundsGave(int64_t tokens, TimeNs took);
  // Views of so many tokens were made.
  void ViewsMade(int64_t tokens, TimeNs took);
  // So many bytes of full KV were moved out.
  void MovedOut(int64_t bytes, TimeNs took);

  // Whether anything was measured that a choice could rest on.
  bool known() const { return steps_.observed() && drafts_.observed() && streamed_; }
  // `limits.plain_max` and `staggered_max` hold beside what memory says. Where the fast tier holds all: plain, there is
  // nothing to move out for. Else, where nothing is known: staggered, with short drafts. Where plain decoding is
  // chosen, draft lengths are those of the rounds that were weighed.
  ModeChoice Choose(const RoundDemand& demand, const ModeLimits& limits, const VerifyLimits& verify);

 private:
  // Sums that fade: what is newer counts more.
  struct Share {
    void Add(double part, double whole, double fade);
    double of(const double otherwise) const { return whole_ > 0 ? part_ / whole_ : otherwise; }

   private:
    double part_ = 0;
    double whole_ = 0;
  };
  struct Load;  // Of one request.
  struct Weighed {
    ModeChoice choice;
    double token_s = 0;  // By the sums alone: as measured, and without what comes once a request.
  };
  Load LoadOf(const RoundDemand& demand);
  double PlainTokensPerSecond(const Load& load, int32_t requests) const;
  // Of all rounds that go: the best draft length, none included, together or not.
  Weighed BestRounds(const Load& load, int32_t requests, const ModeLimits& limits, const VerifyLimits& verify) const;

  // Set at construction.
  const models::StepWork work_;
  const int64_t state_bytes_;
  const int64_t page_bytes_;
  const int64_t layers_;

  ForwardTimes steps_;
  ForwardTimes drafts_;
  // Moving averages; 0: nothing seen.
  bool streamed_ = false;
  double link_s_ = 0;      // A byte.
  Share wait_;             // Seconds that forwards wait, a byte.
  Share off_;              // What rounds took over what was expected.
  Share plain_off_;        // What steps of plain decoding took alike.
  double token_s_ = 0;     // Of the rounds chosen last; 0: none.
  double move_s_ = 0;      // A byte.
  double view_s_ = 0;      // A token.
  double view_bytes_ = 0;  // A token.
};

}  // namespace invar::engine
