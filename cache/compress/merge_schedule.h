// How many pairs a round merges, from how similar they are. The same number in every head, so that pages stay
// rectangular.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace invar::cache {

struct MergeRound {
  // Similarities of the pairs of each head, largest first; pairs that may not be merged are left out.
  std::span<const std::vector<float>> similarities{};
  int64_t slots = 0;       // In reach of merging, before the round.
  int64_t need = 0;        // Slots above the budget.
  int64_t index = 0;       // Of the round in its pass.
  int64_t rounds_max = 1;  // In a pass.
};

struct MergeScheduleOptions {
  double share_max = 0.5;  // r: of the slots in reach, at most this share a round.
  // The paper's: r_j = share_max - j * share_step, whatever the similarity.
  bool is_paper = false;
  double share_step = 0.0;
  // Ours: pairs below a floor stay apart. It falls by `floor_step` from `floor` to `floor_min`, only as far as it takes
  // to merge the round's part of what is needed.
  double floor = 0.8;
  double floor_min = 0.2;
};

inline constexpr double kFloorStep = 0.02;
// Where even the median of best similarities is below the floor, it starts this much lower.
inline constexpr double kFloorDrop = 0.2;

class MergeSchedule {
 public:
  explicit MergeSchedule(const MergeScheduleOptions& options) : options_(options), floor_(options.floor) {}
  // Pairs to merge in each head: a multiple of 64, as only whole pages go; 0: none are similar enough. The floor only
  // falls from round to round.
  int64_t Pairs(const MergeRound& round);
  double floor() const { return floor_; }

 private:
  const MergeScheduleOptions options_;
  double floor_;
};

}  // namespace invar::cache
