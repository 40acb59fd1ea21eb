// ForwardTimes: what forwards take on this machine by what they do, learned from every one of them: a part each, a part
// a row, a part for each position that a row reads, and one for each position whose KV is read, however many rows of
// its sequence read it. A decode step of a small batch, a verify of many rows and a draft on a view are points of one
// such line. What has been seen too rarely to tell its parts apart is shared out as the model's shape says.
// Least squares of relative errors, newer forwards counting more. Pure but for what it remembers. Threads: any, one.
#pragma once

#include <array>
#include <cstddef>

#include "models/model.h"

namespace invar::engine {

// Sums over one forward or several.
struct ForwardWork {
  double forwards = 1;
  double rows = 0;
  double positions = 0;     // Before each row, over all rows.
  double kv_positions = 0;  // Of each span.
};

class ForwardTimes {
 public:
  explicit ForwardTimes(const models::StepWork& shape);

  void Observe(const ForwardWork& work, double seconds);
  bool observed() const { return seen_ > 0; }
  // Seconds. Requires: something was observed.
  double Of(const ForwardWork& work) const;

 private:
  static constexpr size_t kParts = 4;
  using Parts = std::array<double, kParts>;
  Parts Scaled(const ForwardWork& work) const;
  void Solve();

  // Set at construction: what each part takes, relative to reading all weights once.
  const Parts guess_;

  int seen_ = 0;
  double scale_ = 0;    // Seconds of the guess's unit.
  Parts factors_ = {};  // Of the guess, in seconds.
  std::array<Parts, kParts> squares_ = {};
  Parts products_ = {};
};

}  // namespace invar::engine
