// AcceptanceEstimate: the chance that the next drafted token is right, given those before it are; learned from rounds,
// the recent ones most.
#pragma once

#include <cstdint>

namespace invar::engine {

class AcceptanceEstimate {
 public:
  // `prior` counts as `weight` trials that never fade; each round leaves `decay` of what came before.
  AcceptanceEstimate(const double prior, const double weight, const double decay)
      : prior_(prior), weight_(weight), decay_(decay) {}

  // Of a draft the first `right` tokens were right; `refuted`: the one behind them was wrong. Of those behind that
  // nothing is known.
  void Add(const int32_t right, const bool refuted) {
    right_ = decay_ * right_ + right;
    wrong_ = decay_ * wrong_ + (refuted ? 1.0 : 0.0);
  }

  double value() const { return (right_ + weight_ * prior_) / (right_ + wrong_ + weight_); }

 private:
  const double prior_;
  const double weight_;
  const double decay_;
  double right_ = 0.0;
  double wrong_ = 0.0;
};

}  // namespace invar::engine
