// How long to draft: as many tokens as pay, by the measured time of steps and the sequence's own record. Drafting that
// does not pay stops by itself and is tried again now and then, on a budget that bounds what all trying can cost.
// Pure: numbers in, numbers out; table-tested.
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "engine/speculate/acceptance.h"

namespace invar::engine {

// How long steps take by their rows: a line fitted to recent steps that only decode. Before the first one, and for its
// slope before steps of several sizes were seen, a guess.
class StepTimes {
 public:
  void Observe(int32_t rows, TimeNs took);
  // Of a step of so many rows; seconds once something was observed.
  double Of(int32_t rows) const;
  bool observed() const { return seen_ > 0; }

 private:
  double Slope() const;

  // Moving averages: rows, seconds, their variance and covariance.
  int32_t seen_ = 0;
  double rows_ = 1.0;
  double seconds_ = 1.0;
  double variance_ = 0.0;
  double covariance_ = 0.0;
};

// What became of the drafts of one sequence, newer ones counting more.
class DraftRecord {
 public:
  // At worst a sequence gets 1 % behind plain decoding, and half a token and one round for its first tries.
  static constexpr double kFirstCredit = 0.5;
  static constexpr double kCreditShare = 0.01;
  static constexpr double kCreditMax = 2.0;  // Old gains are no licence to lose for long.

  // A round verified: so many tokens were right, and whether one was wrong behind them. `row_cost`: what a drafted row
  // cost, in tokens that a plain step would have given in its time.
  void Verified(int32_t drafted, int32_t right, bool refuted, double row_cost);
  // A token was sampled: what may be lost on trying grows by a share of it.
  void Sampled();

  double acceptance() const {
    return acceptance_.value();
  }  // Chance that the next drafted token is right, given those before it are.
  // Tokens that it may yet lose against plain decoding; below 0: it must not draft.
  double credit() const { return credit_; }

 private:
  // Before the first round as much as one with one token says.
  static constexpr double kPrior = 0.5;
  static constexpr double kPriorWeight = 1.0;
  static constexpr double kDecay = 0.9;

  AcceptanceEstimate acceptance_{kPrior, kPriorWeight, kDecay};
  double credit_ = kFirstCredit;
};

// One sequence of the next step.
struct DraftWish {
  int32_t most = 0;   // What there is room for; 0: it does not speculate.
  int32_t fixed = 0;  // The length it was told; 0: to be chosen.
  double acceptance = 0.0;
  double credit = 0.0;
  double draft_s = 0.0;  // Seconds that its drafter takes for a token.
  int32_t length = 0;    // Out.
};

// In tokens: what one drafted row, and `draft_s` seconds for guessing it, cost a step of `sequences` that decode.
double RowCost(const StepTimes& times, int32_t sequences, double draft_s);

// Sets the lengths that give the most tokens a second in the step of all wishes together. None where that is less than
// kWorthwhile times plain decoding; then those with credit for it try one token.
void ChooseLengths(const StepTimes& times, std::span<DraftWish> wishes);

inline constexpr double kWorthwhile = 1.02;

}  // namespace invar::engine
