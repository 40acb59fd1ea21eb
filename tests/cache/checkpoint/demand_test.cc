// Demand: observations folded into weights, and the cost of a placement.
#include "cache/checkpoint/demand.h"

#include <gtest/gtest.h>

#include "tests/cache/checkpoint/brute_force.h"

namespace invar::cache {
namespace {

TEST(Demand, OfObservationsIsSortedClippedAndWithoutTheFreeStart) {
  EXPECT_EQ(DemandOfDepths(std::vector<int32_t>{9, 3, 0, 3, 100, -1}, 10),
            (Demand{{3, 2 * kWeightOne}, {9, kWeightOne}, {10, kWeightOne}}));
  EXPECT_TRUE(DemandOfDepths({}, 10).empty());
}

TEST(Demand, FoldsDownAndDropsWhatFallsToZero) {
  EXPECT_EQ(FoldToGrid(Demand{{63, 5}, {64, 1}, {127, 2}, {128, 4}}, 64), (Demand{{64, 3}, {128, 4}}));
}

TEST(Demand, CostIsTokensRunAgain) {
  const Demand demand = {{10, 1}, {20, 2}, {30, 4}};
  EXPECT_EQ(RecomputeCost(demand, {}), 10 + 40 + 120);
  EXPECT_EQ(RecomputeCost(demand, std::vector<int32_t>{20}), 10 + 0 + 40);
  EXPECT_EQ(RecomputeCost(demand, std::vector<int32_t>{20}, 3), 10 + 6 + 52);
  EXPECT_EQ(RecomputeCost(demand, std::vector<int32_t>{5, 25, 31}), 5 + 30 + 20);
}

TEST(Demand, CostEqualsItsDefinition) {
  SplitMix64 random(1);
  for (int round = 0; round < 1000; ++round) {
    const Demand demand = RandomDemand(random, 12, 9);
    std::vector<int32_t> positions;
    for (int32_t position = 1; position <= 12; ++position) {
      if (Pick(random, 0, 3) == 0) positions.push_back(position);
    }
    ASSERT_EQ(RecomputeCost(demand, positions, round % 4), CostByDefinition(demand, positions, round % 4));
  }
}

TEST(DemandDeathTest, RefusesWhatSolversCannotTake) {
  EXPECT_DEATH(CheckDemand(Demand{{2, 1}, {2, 1}}), "ascend");
  EXPECT_DEATH(CheckDemand(Demand{{0, 1}}), "ascend");
  EXPECT_DEATH(CheckDemand(Demand{{1, 0}}), "positive");
  EXPECT_DEATH(CheckDemand(Demand{{4, kCostMax / 2}}), "fits");
}

}  // namespace
}  // namespace invar::cache
