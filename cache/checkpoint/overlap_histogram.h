// OverlapHistogram: how often later requests stopped matching in each cell of a family of prefixes, newer ones counting
// more. A cell is whatever the caller counts in: steps from the start, from the end, or shares of the length.
// Decay without touching every cell: the weight of a new observation grows by 2^-kDecayShift a tick, which is the old
// ones shrinking; when it reaches 2^32, everything is halved 16 times at once. All integers: equal calls, equal
// weights. Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace invar::cache {

struct CellWeight {
  int32_t cell = 0;
  int64_t weight = 0;  // More than 0.
  bool operator==(const CellWeight&) const = default;
};

// A weight that shrinks as time ticks, without being written: divide by `one()` of the same clock.
class DecayClock {
 public:
  // Half of a weight is left after ln 2 x 2^9 = 355 ticks: a family forgets a change of its callers within a few
  // hundred requests, and a histogram of that many is past the need for smoothing.
  static constexpr int kDecayShift = 9;
  static constexpr int kRescaleBits = 16;

  // One step of time. Gives true where all weights of this clock must be shifted right by kRescaleBits, now.
  bool Tick();

  // The weight of one observation made now, 2^16 at the start.
  int64_t one() const { return one_; }

 private:
  int64_t one_ = int64_t{1} << 16;
};

class OverlapHistogram {
 public:
  // Adds `weight` (the clock's one()) to a cell. Requires: cell >= 0.
  void Add(int32_t cell, int64_t weight);
  void Rescale();  // After DecayClock::Tick() said so. Cells that fall to 0 go.

  std::span<const CellWeight> cells() const { return cells_; }  // Cells ascending.
  int64_t total() const { return total_; }

  // Remembers the present shape; Drift() counts from it.
  void MarkPlanned() { planned_ = cells_; }
  // Total-variation distance between the present shape and the marked one, in thousandths: the share of the mass that
  // lies elsewhere. 1000 where only one of the two is empty.
  int32_t Drift() const;

  // Recounts the total; stops the process where it differs.
  void CheckIntegrity() const;

 private:
  std::vector<CellWeight> cells_;
  std::vector<CellWeight> planned_;
  int64_t total_ = 0;
};

}  // namespace invar::cache
