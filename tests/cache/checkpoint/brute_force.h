// Slow oracles for the placement solvers, written from the cost's definition alone; and random cases that print
// themselves as code.
#pragma once

#include <algorithm>
#include <functional>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "base/split_mix64.h"
#include "cache/checkpoint/demand.h"

namespace invar::cache {

inline int32_t Pick(SplitMix64& random, const int32_t begin, const int32_t end) {
  return begin + static_cast<int32_t>(random.Next() % static_cast<uint64_t>(end - begin));
}

// Weights over depths 1..length, each present with chance 3/4; small weights, so that ties are common.
inline Demand RandomDemand(SplitMix64& random, const int32_t length, const int32_t weight_max) {
  Demand demand;
  for (int32_t depth = 1; depth <= length; ++depth) {
    if (Pick(random, 0, 4) > 0) demand.push_back({depth, Pick(random, 1, weight_max + 1)});
  }
  return demand;
}

inline std::string AsCode(const DemandView demand) {
  std::ostringstream out;
  out << "Demand{";
  for (const DepthWeight& point : demand) out << "{" << point.depth << ", " << point.weight << "}, ";
  out << "}";
  return out.str();
}

// Every subset of 1..length of at most `places` positions, in no order that a caller may rely on.
inline void ForEachSubset(const int32_t length, const int32_t places,
                          const std::function<void(const std::vector<int32_t>&)>& visit) {
  for (uint32_t bits = 0; bits < (1U << length); ++bits) {
    if (__builtin_popcount(bits) > places) continue;
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < length; ++i) {
      if ((bits >> i & 1U) != 0) positions.push_back(i + 1);
    }
    visit(positions);
  }
}

// Cost by its definition, request by request.
inline int64_t CostByDefinition(const DemandView demand, const std::vector<int32_t>& positions, const int32_t restore) {
  int64_t cost = 0;
  for (const DepthWeight& point : demand) {
    int64_t tokens = point.depth;
    for (const int32_t position : positions) {
      if (position <= point.depth) tokens = point.depth - position + restore;
    }
    cost += tokens * point.weight;
  }
  return cost;
}

// Fewest positions first; then the shallowest last one, the shallowest before it, and so on.
inline bool ComesFirst(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  if (a.size() != b.size()) return a.size() < b.size();
  return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

struct Placed {
  int64_t cost = 0;
  std::vector<int32_t> positions;
};

// The best of all subsets of 1..length, by the tie rule of optimal_dp.h. Requires: length <= 12 or so.
inline Placed BestByBruteForce(const DemandView demand, const int32_t length, const int32_t places,
                               const int32_t restore) {
  Placed best{.cost = CostByDefinition(demand, {}, restore), .positions = {}};
  ForEachSubset(length, places, [&](const std::vector<int32_t>& positions) {
    const int64_t cost = CostByDefinition(demand, positions, restore);
    if (cost < best.cost || (cost == best.cost && ComesFirst(positions, best.positions))) best = {cost, positions};
  });
  return best;
}

}  // namespace invar::cache
