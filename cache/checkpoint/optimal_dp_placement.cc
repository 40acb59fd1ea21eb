// The default placement: the exact solver between the checkpoints that exist anyway.
// A fixed checkpoint cuts the prefix: what lies before it and after it never share a resume point. Each stretch is one
// problem on depths counted from its fixed checkpoint, and since each stretch's cost is convex in its places, handing
// the places out one by one to the largest gain is exact for all stretches together.
#include <algorithm>

#include "base/check.h"
#include "cache/checkpoint/optimal_dp.h"
#include "cache/checkpoint/policies.h"

namespace invar::cache {
namespace {

struct Stretch {
  int32_t begin = 0;           // The fixed checkpoint it starts at, or 0.
  int32_t restore_tokens = 0;  // Behind a fixed checkpoint a restore is paid in any case.
  Demand demand;               // Depths from `begin`.
};

std::vector<Stretch> Cut(const PlacementProblem& problem) {
  std::vector<Stretch> stretches = {{.begin = 0, .restore_tokens = problem.restore_tokens, .demand = {}}};
  size_t next = 0;
  for (const DepthWeight& point : problem.demand) {
    for (; next < problem.fixed.size() && problem.fixed[next] <= point.depth; ++next) {
      stretches.push_back({.begin = problem.fixed[next], .restore_tokens = 0, .demand = {}});
    }
    const int32_t depth = point.depth - stretches.back().begin;
    if (depth > 0) stretches.back().demand.push_back({depth, point.weight});
  }
  return stretches;
}

void AppendShifted(std::vector<int32_t>& all, const std::vector<int32_t>& positions, const int32_t begin) {
  for (const int32_t position : positions) all.push_back(begin + position);
}

// Any count: the price alone decides.
std::vector<int32_t> AtPrice(const std::vector<Stretch>& stretches, const int64_t price) {
  std::vector<int32_t> all;
  for (const Stretch& stretch : stretches) {
    AppendShifted(all, PlaceAtPrice(stretch.demand, price, stretch.restore_tokens), stretch.begin);
  }
  return all;
}

// At most `places`, and none that saves no more than the price. Equal gains go to the shallower stretch.
std::vector<int32_t> WithinPlaces(const std::vector<Stretch>& stretches, const int64_t price, const int32_t places) {
  std::vector<ChainDp> solved;
  solved.reserve(stretches.size());
  for (const Stretch& stretch : stretches) solved.emplace_back(stretch.demand, places, stretch.restore_tokens);
  std::vector<int32_t> given(stretches.size(), 0);
  const auto gain = [&](const size_t i) {
    return given[i] < solved[i].places() ? solved[i].Cost(given[i]) - solved[i].Cost(given[i] + 1) : int64_t{0};
  };
  for (int32_t place = 0; place < places; ++place) {
    size_t best = 0;
    for (size_t i = 1; i < stretches.size(); ++i) {
      if (gain(i) > gain(best)) best = i;
    }
    if (gain(best) <= price) break;
    ++given[best];
  }
  std::vector<int32_t> all;
  for (size_t i = 0; i < stretches.size(); ++i) AppendShifted(all, solved[i].Positions(given[i]), stretches[i].begin);
  return all;
}

class OptimalDpPlacement final : public PlacementPolicy {
 public:
  PlacementTraits traits() const override {
    return {.keeps_kv = true, .at_end = true, .at_branch = true, .at_hints = true, .reads_demand = true};
  }

  // The price form is the cheaper one and, where it stays within the places, the answer.
  std::vector<int32_t> Place(const PlacementProblem& problem) const override {
    Check(problem.length >= 1 && problem.places >= 0, "a problem has a length and places", problem.length,
          problem.places);
    Check(problem.demand.empty() || problem.demand.back().depth <= problem.length, "demand lies in the prefix");
    const std::vector<Stretch> stretches = Cut(problem);
    if (problem.price > 0) {
      const std::vector<int32_t> positions = AtPrice(stretches, std::min(problem.price, kCostMax));
      if (positions.size() <= static_cast<size_t>(problem.places)) return positions;
    }
    return WithinPlaces(stretches, problem.price, problem.places);
  }
};

}  // namespace

std::unique_ptr<PlacementPolicy> MakeOptimalDpPlacement() { return std::make_unique<OptimalDpPlacement>(); }

}  // namespace invar::cache
