// ViewWorth: whether to make a view to draft on. A view costs before it gives anything, as much as decoding many
// tokens, and what it gives depends on how long the text still gets and how often drafts on it are right. So a
// drafter's sequences learn from each other: one is given a view where those before it say that it pays. Where they say
// it does not, or nothing is known yet, one is made now and then, on a budget: all such tries together may lose
// kTryShare of what is generated, and one view; what is not lost is saved up to kCreditMax. Pure: numbers in, numbers
// out; table-tested.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/speculate/acceptance.h"
#include "engine/speculate/draft_length.h"

namespace invar::engine {

// One that would like a view.
struct ViewWish {
  int32_t tokens = 0;       // Of its text: what making takes grows with them.
  int32_t output_left = 0;  // What it may still generate.
  int32_t most = 0;         // Tokens of a draft.
};

class ViewWorth {
 public:
  static constexpr double kTryShare = 0.005;
  static constexpr double kSafety = 2.0;  // Times its cost that a view must be expected to give back: few texts get as
                                          // long as they may.

  // Tokens that tries may lose at once: a few views. What was saved over days is no licence to try on every sequence.
  static constexpr double kCreditMax = 100.0;

  // Whether to make it, in a step of `sequences` that decode, where a drafted token takes `draft_s` seconds (0: not
  // known). Effects: none; where the answer is a try, Made must follow before the next question.
  enum class Answer { kNo, kTry, kPays };
  Answer Ask(const StepTimes& times, int32_t sequences, double draft_s, const ViewWish& wish) const;

  // A view of so many tokens was made in `seconds`, as a try or not.
  void Made(const StepTimes& times, int32_t sequences, double seconds, int32_t tokens, bool is_try);
  // As of DraftRecord, of all sequences together.
  double acceptance() const { return acceptance_.value(); }
  void Verified(const int32_t right, const bool refuted) { acceptance_.Add(right, refuted); }
  void Sampled() { credit_ = std::min(kCreditMax, credit_ + kTryShare); }

 private:
  // Over views of several sequences: rounds of some hundred tokens count.
  AcceptanceEstimate acceptance_{/*prior=*/0.5, /*weight=*/1.0, /*decay=*/0.99};
  double seconds_per_token_ = 0.0;  // Of making; 0: none was made yet.
  double credit_ = 0.0;             // Tokens that tries may yet lose; below 0: none now.
};

}  // namespace invar::engine
