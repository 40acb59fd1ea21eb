// AcceptanceEstimate: how probable it is that a drafted token is accepted, learned from rounds, the recent ones most.
#pragma once

#include <cstdint>

namespace invar::engine {

class AcceptanceEstimate {
 public:
  // `prior`: the value before the first round, worth kPriorTrials trials.
  explicit AcceptanceEstimate(const double prior) : accepted_(prior * kPriorTrials), trials_(kPriorTrials) {}

  // Of `drafted` tokens the first `accepted` were right; the one after them, if there was one, was wrong, and nothing
  // is known of those behind it.
  void Add(const int32_t drafted, const int32_t accepted) {
    const double trials = accepted + (accepted < drafted ? 1 : 0);
    if (trials_ + trials > kTrialsMax) {
      const double kept = kTrialsMax / (trials_ + trials);
      accepted_ *= kept;
      trials_ *= kept;
    }
    accepted_ += accepted;
    trials_ += trials;
  }

  double value() const { return accepted_ / trials_; }

 private:
  static constexpr double kPriorTrials = 8;
  static constexpr double kTrialsMax = 512;  // Older trials fade beyond.

  double accepted_;
  double trials_;
};

}  // namespace invar::engine
