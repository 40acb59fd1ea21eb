// The normal equations of forward_times.h, four unknowns.
#include "engine/speculate/forward_times.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace invar::engine {
namespace {

// A row more takes so much of reading all weights: measured 0.10 to 0.14 on two cores of a Zen 3.
constexpr double kGuessedRowShare = 0.12;
constexpr double kFade = 0.985;   // Of what was seen, a forward later: some seventy count.
constexpr double kDoubt = 0.01;   // Weight of the guess: a part that forwards tell apart to 10 % is theirs.
constexpr double kLeast = 0.05;   // Of the guess, whatever noise says: no part gives time back.
constexpr double kOutlier = 3.0;  // Times what was expected: a stall of the machine says nothing about the forward.
constexpr int kSeenBefore = 8;    // Forwards before anything can be called an outlier.

}  // namespace

ForwardTimes::ForwardTimes(const models::StepWork& shape)
    : guess_{1.0, kGuessedRowShare,
             kGuessedRowShare * static_cast<double>(shape.attention_flops_per_position) /
                 std::max<double>(1.0, static_cast<double>(shape.matmul_flops)),
             static_cast<double>(shape.kv_bytes_per_position) /
                 std::max<double>(1.0, static_cast<double>(shape.weight_bytes))} {}

ForwardTimes::Parts ForwardTimes::Scaled(const ForwardWork& work) const {
  return {work.forwards * guess_[0], work.rows * guess_[1], work.positions * guess_[2], work.kv_positions * guess_[3]};
}

void ForwardTimes::Observe(const ForwardWork& work, double seconds) {
  if (seconds <= 0) return;
  const Parts parts = Scaled(work);
  if (seen_ == 0) {
    double guessed = 0;
    for (const double part : parts) guessed += part;
    if (guessed <= 0) return;
    scale_ = seconds / guessed;
  }
  if (seen_ >= kSeenBefore) seconds = std::min(seconds, kOutlier * Of(work));
  seen_ = std::min(seen_ + 1, kSeenBefore);
  const double fade = std::pow(kFade, work.forwards);
  const double unit = scale_ / seconds;
  for (size_t i = 0; i < kParts; ++i) {
    for (size_t j = 0; j < kParts; ++j) {
      squares_[i][j] = fade * squares_[i][j] + work.forwards * parts[i] * parts[j] * unit * unit;
    }
    products_[i] = fade * products_[i] + work.forwards * parts[i] * unit;
  }
  Solve();
}

// (squares + doubt) x = products + doubt, x near 1: symmetric and positive, so elimination needs no pivots.
void ForwardTimes::Solve() {
  std::array<Parts, kParts> left = squares_;
  Parts right = products_;
  for (size_t i = 0; i < kParts; ++i) {
    left[i][i] += kDoubt;
    right[i] += kDoubt;
  }
  for (size_t i = 0; i < kParts; ++i) {
    for (size_t row = i + 1; row < kParts; ++row) {
      const double factor = left[row][i] / left[i][i];
      for (size_t j = i; j < kParts; ++j) left[row][j] -= factor * left[i][j];
      right[row] -= factor * right[i];
    }
  }
  for (size_t i = kParts; i-- > 0;) {
    double rest = right[i];
    for (size_t j = i + 1; j < kParts; ++j) rest -= left[i][j] * factors_[j];
    factors_[i] = rest / left[i][i];
  }
  for (double& factor : factors_) factor = std::max(kLeast, factor);
}

double ForwardTimes::Of(const ForwardWork& work) const {
  const Parts parts = Scaled(work);
  double seconds = 0;
  for (size_t i = 0; i < kParts; ++i) seconds += factors_[i] * parts[i] * scale_;
  return seconds;
}

}  // namespace invar::engine
