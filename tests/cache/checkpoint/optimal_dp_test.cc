// The exact solver against brute force over every subset of positions (not only the support) and against the plain
// O(K^2 M) recursion; and the properties the paper proves.
#include "cache/checkpoint/optimal_dp.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "cache/checkpoint/placement.h"
#include "tests/cache/checkpoint/brute_force.h"

namespace invar::cache {
namespace {

TEST(OptimalDp, EqualsBruteForceInCostAndPositions) {
  SplitMix64 random(1);
  int values = 0;
  for (int round = 0; round < 3000; ++round) {
    const int32_t length = Pick(random, 1, 11);
    const Demand demand = RandomDemand(random, length, round % 3 == 0 ? 2 : 9);
    const int32_t restore = round % 2 == 0 ? 0 : Pick(random, 0, 5);
    const ChainDp solved(demand, 5, restore);
    for (int32_t places = 0; places <= solved.places(); ++places, ++values) {
      const Placed best = BestByBruteForce(demand, length, places, restore);
      ASSERT_EQ(solved.Cost(places), best.cost) << AsCode(demand) << " places " << places << " restore " << restore;
      ASSERT_EQ(solved.Positions(places), best.positions)
          << AsCode(demand) << " places " << places << " restore " << restore;
      ASSERT_EQ(RecomputeCost(demand, solved.Positions(places), restore), best.cost) << AsCode(demand);
    }
  }
  EXPECT_GE(values, 10'000);
}

TEST(OptimalDp, PriceFormEqualsBruteForce) {
  SplitMix64 random(2);
  for (int round = 0; round < 10'000; ++round) {
    const int32_t length = Pick(random, 1, 9);
    const Demand demand = RandomDemand(random, length, 6);
    const int32_t restore = round % 2 == 0 ? 0 : Pick(random, 0, 4);
    const int64_t price = Pick(random, 0, 20);
    const std::vector<int32_t> positions = PlaceAtPrice(demand, price, restore);
    int64_t best = CostByDefinition(demand, {}, restore);
    ForEachSubset(length, length, [&](const std::vector<int32_t>& subset) {
      best = std::min(best, CostByDefinition(demand, subset, restore) + price * static_cast<int64_t>(subset.size()));
    });
    ASSERT_EQ(RecomputeCost(demand, positions, restore) + price * static_cast<int64_t>(positions.size()), best)
        << AsCode(demand) << " price " << price << " restore " << restore;
  }
}

// The O(K^2 M) recursion, on sizes that subsets cannot reach and weights near the end of the range.
std::vector<int64_t> CostsByRecursion(const DemandView demand, const int32_t places) {
  const size_t points = demand.size();
  const auto serve = [&](const size_t s, const size_t j) {
    int64_t cost = 0;
    for (size_t t = s; t < j; ++t) cost += demand[t].weight * (demand[t].depth - demand[s].depth);
    return cost;
  };
  std::vector<int64_t> before(points + 1, 0);
  for (size_t j = 1; j <= points; ++j) before[j] = before[j - 1] + demand[j - 1].weight * demand[j - 1].depth;
  std::vector<int64_t> costs = {before[points]};
  for (int32_t m = 1; m <= places; ++m) {
    std::vector<int64_t> now = before;
    for (size_t j = 1; j <= points; ++j) {
      for (size_t s = 0; s < j; ++s) now[j] = std::min(now[j], before[s] + serve(s, j));
    }
    costs.push_back(now[points]);
    before = now;
  }
  return costs;
}

TEST(OptimalDp, EqualsTheQuadraticRecursionOnLongerPrefixesAndHugeWeights) {
  SplitMix64 random(3);
  for (int round = 0; round < 300; ++round) {
    const int64_t scale = round % 2 == 0 ? 1 : int64_t{1} << 50;
    Demand demand;
    for (int32_t depth = Pick(random, 1, 20); demand.size() < 40; depth += Pick(random, 1, 20)) {
      demand.push_back({depth, scale / 50 * Pick(random, 0, 2) + Pick(random, 1, 1000)});
    }
    const ChainDp solved(demand, 10);
    const std::vector<int64_t> costs = CostsByRecursion(demand, 10);
    for (int32_t places = 0; places <= 10; ++places) {
      ASSERT_EQ(solved.Cost(places), costs[places]) << AsCode(demand) << " places " << places;
      ASSERT_EQ(RecomputeCost(demand, solved.Positions(places)), costs[places])
          << AsCode(demand) << " places " << places;
    }
  }
}

TEST(OptimalDp, MorePlacesNeverCostMoreAndGainsFall) {
  SplitMix64 random(4);
  for (int round = 0; round < 500; ++round) {
    const Demand demand = RandomDemand(random, 200, 1000);
    const ChainDp solved(demand, 40);
    for (int32_t places = 1; places < solved.places(); ++places) {
      ASSERT_LE(solved.Cost(places), solved.Cost(places - 1));
      ASSERT_GE(solved.Cost(places - 1) - solved.Cost(places), solved.Cost(places) - solved.Cost(places + 1));
    }
  }
}

TEST(OptimalDp, APriceBuysExactlyThePlacesThatGainMore) {
  SplitMix64 random(5);
  for (int round = 0; round < 500; ++round) {
    const Demand demand = RandomDemand(random, 100, 100);
    const ChainDp solved(demand, 100);
    for (int32_t places = 1; places < solved.places(); places += 7) {
      // Strictly between this place's gain and the next one's, if there is room.
      const int64_t gain = solved.Cost(places - 1) - solved.Cost(places);
      const int64_t next = solved.Cost(places) - solved.Cost(places + 1);
      if (gain - next < 2) continue;
      ASSERT_EQ(RecomputeCost(demand, PlaceAtPrice(demand, gain - 1)), solved.Cost(places)) << AsCode(demand);
    }
  }
}

TEST(OptimalDp, PutsEveryPlaceAtAPeakWhenPlacesCoverThePeaks) {
  const Demand demand = {{187, 5}, {352, 1}, {1024, 9}};
  EXPECT_EQ(ChainDp(demand, 8).Positions(3), (std::vector<int32_t>{187, 352, 1024}));
  EXPECT_EQ(ChainDp(demand, 8).Cost(3), 0);
  EXPECT_EQ(ChainDp(demand, 8).places(), 3);
}

TEST(OptimalDp, TiesGoToTheShallowerPosition) {
  // One place: at 1 it saves one token of both requests, at 2 two tokens of the deeper one.
  EXPECT_EQ(ChainDp(Demand{{1, 1}, {2, 1}}, 1).Positions(1), (std::vector<int32_t>{1}));
}

TEST(OptimalDp, NothingObservedPlacesNothing) {
  EXPECT_EQ(ChainDp({}, 4).places(), 0);
  EXPECT_EQ(ChainDp({}, 4).Cost(0), 0);
  EXPECT_TRUE(PlaceAtPrice({}, 0).empty());
}

TEST(OptimalDp, CheckpointsShallowerThanTheRestoreCostAreNeverPlaced) {
  const Demand demand = {{4, 1000}, {6, 1}, {10, 1}};
  for (const std::vector<int32_t>& positions : {ChainDp(demand, 3, 5).Positions(2), PlaceAtPrice(demand, 0, 5)}) {
    EXPECT_FALSE(positions.empty());
    for (const int32_t position : positions) EXPECT_GT(position, 5);
  }
}

TEST(OptimalDp, SolvingOnTheGridIsExactForPlacementsOnTheGrid) {
  SplitMix64 random(6);
  for (int round = 0; round < 200; ++round) {
    const Demand demand = RandomDemand(random, 36, 9);
    int64_t rounding = 0;
    for (const DepthWeight& point : demand) rounding += point.weight * (point.depth % 4);
    const ChainDp solved(FoldToGrid(demand, 4), 3);
    int64_t best = CostByDefinition(demand, {}, 0);
    ForEachSubset(9, 3, [&](std::vector<int32_t> positions) {
      for (int32_t& position : positions) position *= 4;
      best = std::min(best, CostByDefinition(demand, positions, 0));
    });
    ASSERT_EQ(solved.Cost(solved.places()) + rounding, best) << AsCode(demand);
  }
}

// The paper's properties.
TEST(OptimalDp, EvenSpacingIsOptimalForUniformDepths) {
  const auto balanced = MakePlacement("balanced");
  for (const int32_t places : {1, 2, 3, 4, 7, 9}) {
    // Depths 0..N-1, N a multiple of places + 1, so that even spacing falls on whole tokens.
    const int32_t length = 120 * (places + 1);
    Demand demand;
    for (int32_t depth = 1; depth < length; ++depth) demand.push_back({depth, kWeightOne});
    EXPECT_EQ(ChainDp(demand, places).Cost(places),
              RecomputeCost(demand, balanced->Place({.length = length, .places = places})));
  }
}

TEST(OptimalDp, EvenSpacingIsOptimalInTheWorstCase) {
  // The worst depth costs the widest gap; no placement has a narrower widest gap than N / (M + 1).
  const auto balanced = MakePlacement("balanced");
  const auto widest = [](const std::vector<int32_t>& positions, const int32_t length) {
    int32_t worst = 0;
    for (int32_t depth = 1; depth < length; ++depth) {
      worst = std::max<int32_t>(worst, static_cast<int32_t>(RecomputeCost(Demand{{depth, 1}}, positions)));
    }
    return worst;
  };
  for (int32_t length = 4; length <= 11; ++length) {
    for (int32_t places = 0; places <= 4; ++places) {
      int32_t best = length;
      ForEachSubset(length, places, [&](const auto& positions) { best = std::min(best, widest(positions, length)); });
      const auto even = balanced->Place({.length = length, .places = places});
      EXPECT_EQ(widest(even, length), best) << "length " << length << " places " << places;
    }
  }
}

TEST(OptimalDp, RegretIsAtMostTwiceLengthTimesTotalVariation) {
  SplitMix64 random(7);
  constexpr int32_t kLength = 100;
  for (int round = 0; round < 1000; ++round) {
    const Demand planned = RandomDemand(random, kLength, 50);
    const Demand truth = RandomDemand(random, kLength, 50);
    const int64_t planned_total = TotalWeight(planned);
    const int64_t true_total = TotalWeight(truth);
    std::vector<int64_t> difference(kLength + 1, 0);  // Of probabilities, times both totals.
    for (const DepthWeight& point : planned) difference[point.depth] += point.weight * true_total;
    for (const DepthWeight& point : truth) difference[point.depth] -= point.weight * planned_total;
    const int64_t twice_variation =
        std::accumulate(difference.begin(), difference.end(), int64_t{0},
                        [](const int64_t sum, const int64_t d) { return sum + std::abs(d); });
    const ChainDp best(truth, 4);
    const int64_t regret = RecomputeCost(truth, ChainDp(planned, 4).Positions(4)) - best.Cost(4);
    ASSERT_GE(regret, 0);
    ASSERT_LE(regret * planned_total, kLength * twice_variation) << AsCode(planned) << AsCode(truth);
  }
}

}  // namespace
}  // namespace invar::cache
