// The floor is the point of it: forcing half of the tokens to merge is what destroys keys that are like no other.
#include "cache/compress/merge_schedule.h"

#include <algorithm>
#include <limits>

#include "kernels/kv_encoding.h"

namespace invar::cache {
namespace {

constexpr int64_t kPage = kernels::kEncodedPageSlots;

int64_t WholePages(const int64_t slots) { return slots / kPage * kPage; }

// Pairs at or above `floor` in the head that has fewest.
int64_t PairsAbove(const MergeRound& round, const double floor) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const std::vector<float>& head : round.similarities) {
    const auto end = std::partition_point(head.begin(), head.end(), [&](const float s) { return s >= floor; });
    least = std::min<int64_t>(least, end - head.begin());
  }
  return least;
}

double MedianOfBest(const MergeRound& round) {
  double sum = 0.0;
  for (const std::vector<float>& head : round.similarities) sum += head.empty() ? 0.0 : head[head.size() / 2];
  return sum / static_cast<double>(round.similarities.size());
}

}  // namespace

int64_t MergeSchedule::Pairs(const MergeRound& round) {
  const double share = options_.share_max - (options_.is_paper ? options_.share_step * round.index : 0.0);
  auto most = static_cast<int64_t>(std::max(0.0, share) * static_cast<double>(round.slots));
  if (options_.is_paper) return WholePages(std::min({round.need, most, PairsAbove(round, -2.0)}));
  most = std::max(most, kPage);  // Less does not go.
  const int64_t wanted = std::min(round.need, most);

  if (round.index == 0 && MedianOfBest(round) < floor_) floor_ = std::max(options_.floor_min, floor_ - kFloorDrop);
  const int64_t rounds_left = std::max<int64_t>(1, round.rounds_max - round.index);
  const int64_t part = (round.need + rounds_left - 1) / rounds_left;
  const int64_t enough = std::min(wanted, (part + kPage - 1) / kPage * kPage);
  while (PairsAbove(round, floor_) < enough && floor_ > options_.floor_min) {
    floor_ = std::max(options_.floor_min, floor_ - kFloorStep);
  }
  return WholePages(std::min(wanted, PairsAbove(round, floor_)));
}

}  // namespace invar::cache
