// The arithmetic of view_worth.h: gains by the best length of draft, as draft_length.cc finds it for one sequence among
// others that decode plainly.
#include "engine/speculate/view_worth.h"

#include <algorithm>

namespace invar::engine {
namespace {

constexpr double kNewer = 0.3;  // Of the average: views are few.

// Tokens a second with the best draft over those without.
double BestGain(const StepTimes& times, const int32_t sequences, const double draft_s, const double acceptance,
                const int32_t most) {
  const double plain = sequences / times.Of(sequences);
  double best = 1.0;
  double tokens = sequences;
  double gain = 1.0;
  for (int32_t length = 1; length <= most; ++length) {
    gain *= acceptance;
    tokens += gain;
    best = std::max(best, tokens / (times.Of(sequences + length) + length * draft_s) / plain);
  }
  return best;
}

}  // namespace

ViewWorth::Answer ViewWorth::Ask(const StepTimes& times, const int32_t sequences, const double draft_s,
                                 const ViewWish& wish) const {
  if (wish.most < 1 || !times.observed()) return Answer::kNo;
  if (seconds_per_token_ > 0.0 && draft_s > 0.0) {
    // All wait while it is made; all share what a step gains.
    const double gain = BestGain(times, sequences, draft_s, acceptance_.value(), wish.most);
    const double cost_steps = seconds_per_token_ * wish.tokens / times.Of(sequences);
    if (gain >= kWorthwhile && (gain - 1.0) * wish.output_left >= kSafety * cost_steps) return Answer::kPays;
  }
  return credit_ >= 0.0 ? Answer::kTry : Answer::kNo;
}

void ViewWorth::Made(const StepTimes& times, const int32_t sequences, const double seconds, const int32_t tokens,
                     const bool is_try) {
  const double each = seconds / tokens;
  seconds_per_token_ = seconds_per_token_ == 0.0 ? each : (1.0 - kNewer) * seconds_per_token_ + kNewer * each;
  if (is_try) credit_ -= sequences * seconds / times.Of(sequences);
}

}  // namespace invar::engine
