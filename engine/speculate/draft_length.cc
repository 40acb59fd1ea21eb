// The arithmetic of draft_length.h. With S tokens expected of a step of R rows that takes T(R), one row more is worth
// it while (S + gain) / T(R + 1) > S / T(R); gains of a sequence fall as powers of its acceptance, so taking the
// largest next gain each time finds the best lengths (among drafters that take the same time). T counts what drafters
// take before the step too.
#include "engine/speculate/draft_length.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>
#include <vector>

namespace invar::engine {
namespace {

constexpr int32_t kMemory = 64;            // Steps over which times are averaged.
constexpr double kGuessedRowShare = 0.15;  // Of a one-row step, a row more: measured 0.14 on two cores of a Zen 3.
constexpr double kGuessWeight = 0.25;      // Against the variance of rows seen: a few steps of other sizes outweigh it.
constexpr double kOutlier = 4.0;           // Times what was expected: a stall of the machine says nothing about rows.

}  // namespace

void StepTimes::Observe(const int32_t rows, const TimeNs took) {
  if (took <= 0) return;
  const double limit = seen_ < 8 ? HUGE_VAL : kOutlier * Of(rows);
  const double seconds = std::min(ToSeconds(took), limit);
  if (seen_ == 0) {
    rows_ = rows;
    seconds_ = seconds;
  }
  seen_ = std::min(seen_ + 1, kMemory);
  const double weight = 1.0 / seen_;
  const double more_rows = rows - rows_;
  const double more_seconds = seconds - seconds_;
  rows_ += weight * more_rows;
  seconds_ += weight * more_seconds;
  variance_ = (1.0 - weight) * (variance_ + weight * more_rows * more_rows);
  covariance_ = (1.0 - weight) * (covariance_ + weight * more_rows * more_seconds);
}

double StepTimes::Slope() const {
  const double guess = kGuessedRowShare * seconds_ / (1.0 + kGuessedRowShare * (rows_ - 1.0));
  return std::max(0.0, (covariance_ + kGuessWeight * guess) / (variance_ + kGuessWeight));
}

double StepTimes::Of(const int32_t rows) const {
  // A line through noise may cross zero; a step never takes less than this.
  return std::max(0.1 * seconds_, seconds_ + Slope() * (rows - rows_));
}

void DraftRecord::Verified(const int32_t drafted, const int32_t right, const bool refuted, const double row_cost) {
  acceptance_.Add(right, refuted);
  credit_ = std::min(kCreditMax, credit_ + right - drafted * row_cost);
}

void DraftRecord::Sampled() { credit_ = std::min(kCreditMax, credit_ + kCreditShare); }

double RowCost(const StepTimes& times, const int32_t sequences, const double draft_s) {
  const double plain = times.Of(sequences);
  return sequences * (times.Of(sequences + 1) - plain + draft_s) / plain;
}

void ChooseLengths(const StepTimes& times, const std::span<DraftWish> wishes) {
  const auto sequences = static_cast<int32_t>(wishes.size());
  int32_t rows = sequences;
  double tokens = sequences;
  double drafting = 0.0;                                 // Seconds before the step.
  std::priority_queue<std::pair<double, size_t>> gains;  // Of the next token; ties to the later wish.
  for (size_t i = 0; i < wishes.size(); ++i) {
    DraftWish& wish = wishes[i];
    wish.length = std::min(wish.fixed, wish.most);
    rows += wish.length;
    drafting += wish.length * wish.draft_s;
    double gain = wish.acceptance;
    for (int32_t t = 0; t < wish.length; ++t, gain *= wish.acceptance) tokens += gain;
    if (wish.fixed == 0 && wish.most > 0 && wish.credit >= 0.0) gains.emplace(wish.acceptance, i);
  }
  const double plain = tokens / (drafting + times.Of(rows));
  while (!gains.empty()) {
    const auto [gain, i] = gains.top();
    gains.pop();
    DraftWish& wish = wishes[i];
    const double seconds = drafting + times.Of(rows);
    const double more_seconds = drafting + wish.draft_s + times.Of(rows + 1);
    if ((tokens + gain) * seconds <= tokens * more_seconds) continue;  // Another's guesses may cost less.
    tokens += gain;
    ++rows;
    drafting += wish.draft_s;
    if (++wish.length < wish.most) gains.emplace(gain * wish.acceptance, i);
  }
  const bool pays = tokens / (drafting + times.Of(rows)) >= kWorthwhile * plain;
  for (DraftWish& wish : wishes) {
    if (wish.fixed > 0) continue;
    if (!pays) wish.length = 0;
    if (wish.length == 0 && wish.most > 0 && wish.credit >= RowCost(times, sequences, wish.draft_s)) {
      wish.length = 1;
    }
  }
}

}  // namespace invar::engine
