// A ratio of two sums over samples, as a mean a token is, and how far it may be off. Tokens of one sample are alike, so
// what is independent is samples: the standard error is that of a ratio over clusters (linearised; Cochran, Sampling
// Techniques, section 6.3), from sums that a sample at a time is added to.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace invar::eval {

class SpreadRatio {
 public:
  // One sample: `part` of `whole`. Samples of nothing say nothing.
  void Add(const double part, const double whole) {
    if (whole <= 0.0) return;
    ++samples_;
    part_ += part;
    whole_ += whole;
    part_part_ += part * part;
    part_whole_ += part * whole;
    whole_whole_ += whole * whole;
  }

  int64_t samples() const { return samples_; }
  double value() const { return whole_ > 0.0 ? part_ / whole_ : 0.0; }
  // 0 where there are not two samples to tell by.
  double standard_error() const {
    if (samples_ < 2) return 0.0;
    const double ratio = value();
    const double squares = part_part_ - 2.0 * ratio * part_whole_ + ratio * ratio * whole_whole_;
    const auto count = static_cast<double>(samples_);
    return std::sqrt(std::max(0.0, squares) * count / (count - 1.0)) / whole_;
  }

 private:
  int64_t samples_ = 0;
  double part_ = 0.0;
  double whole_ = 0.0;
  double part_part_ = 0.0;
  double part_whole_ = 0.0;
  double whole_whole_ = 0.0;
};

}  // namespace invar::eval
