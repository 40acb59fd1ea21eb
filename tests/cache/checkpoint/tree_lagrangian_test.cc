// The concave-function solver against every subset at a price; the budget form against the exact tree solver.
#include "cache/checkpoint/tree_lagrangian.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "tests/cache/checkpoint/random_tree.h"

namespace invar::cache {
namespace {

int64_t PricedCost(const TreeView tree, const std::vector<int32_t>& nodes, const int64_t price) {
  return TreeCost(tree, nodes) + price * static_cast<int64_t>(nodes.size());
}

TEST(TreeLagrangian, EqualsBruteForceAtEveryPrice) {
  SplitMix64 random(1);
  int cases = 0;
  for (int round = 0; round < 1500; ++round) {
    const int32_t nodes = Pick(random, 1, 11);
    const auto tree = RandomTree(random, nodes, Pick(random, 1, nodes + 1), 7, 5);
    std::vector<int64_t> best(nodes + 1, INT64_MAX);  // By number of checkpoints.
    for (uint32_t bits = 0; bits < (1U << nodes); ++bits) {
      int64_t& cost = best[__builtin_popcount(bits)];
      cost = std::min(cost, TreeCostByDefinition(tree, bits));
    }
    for (const int64_t price : {0, 1, 3, Pick(random, 0, 30), Pick(random, 0, 100)}) {
      int64_t least = INT64_MAX;
      for (int32_t count = 0; count <= nodes; ++count) least = std::min(least, best[count] + price * count);
      ASSERT_EQ(PricedCost(tree, PlaceOnTreeAtPrice(tree, price), price), least) << AsCode(tree) << " price " << price;
      ++cases;
    }
  }
  EXPECT_GE(cases, 5000);
}

TEST(TreeLagrangian, EqualsTheExactSolverWhereItsCountIsKnown) {
  // The priced optimum is also the best for its own number of checkpoints; on trees no brute force reaches.
  SplitMix64 random(2);
  int cases = 0;
  for (int round = 0; round < 300; ++round) {
    const auto tree = RandomTree(random, 200, Pick(random, 2, 200), 1000, 1000);
    const int64_t price = int64_t{1} << Pick(random, 18, 26);
    const std::vector<int32_t> placed = PlaceOnTreeAtPrice(tree, price);
    if (placed.size() > 40) continue;
    cases += placed.empty() ? 0 : 1;
    const auto exact = PlaceOnTree(tree, static_cast<int32_t>(placed.size()));
    ASSERT_EQ(TreeCost(tree, placed), TreeCost(tree, exact)) << AsCode(tree) << " price " << price;
  }
  EXPECT_GE(cases, 100);
}

TEST(TreeLagrangian, ABudgetOnSmallTreesIsMetNearlyAlwaysExactly) {
  SplitMix64 random(3);
  int cases = 0;
  int missed = 0;
  for (int round = 0; round < 1000; ++round) {
    const int32_t nodes = Pick(random, 1, 13);
    const auto tree = RandomTree(random, nodes, Pick(random, 1, nodes + 1), 9, 9);
    for (int32_t places = 0; places <= nodes; ++places, ++cases) {
      const TreeBudgetPlan plan = PlaceOnTreeWithin(tree, places);
      ASSERT_LE(plan.nodes.size(), static_cast<size_t>(places));
      missed += TreeCost(tree, plan.nodes) == TreeCost(tree, PlaceOnTree(tree, places)) ? 0 : 1;
    }
  }
  EXPECT_LE(missed, cases / 500) << "of " << cases;
}

TEST(TreeLagrangian, ABudgetLosesAtMostAThousandthOfTheSaving) {
  SplitMix64 random(4);
  for (const int32_t nodes : {300, 1000, 2000}) {
    for (const int32_t reach : {nodes, nodes / 8, 60}) {
      const auto tree = RandomTree(random, nodes, reach, 300, 100);
      for (const int32_t places : {1, 2, 5, 16, 64}) {
        const TreeBudgetPlan plan = PlaceOnTreeWithin(tree, places);
        ASSERT_LE(plan.nodes.size(), static_cast<size_t>(places));
        const int64_t nothing = TreeCost(tree, {});
        const int64_t best = nothing - TreeCost(tree, PlaceOnTree(tree, places));
        const int64_t found = nothing - TreeCost(tree, plan.nodes);
        ASSERT_GE(found, best - best / 1000) << nodes << " nodes, reach " << reach << ", places " << places;
      }
    }
  }
}

TEST(TreeLagrangian, TakesADeepChainAndAWideStar) {
  std::vector<TreeNode> chain;
  std::vector<TreeNode> star;
  for (int32_t v = 0; v < 5000; ++v) {
    chain.push_back({.parent = v - 1, .depth = v + 1, .weight = 1});
    star.push_back({.parent = -1, .depth = 1 + v % 7, .weight = 1});
  }
  const TreeBudgetPlan plan = PlaceOnTreeWithin(chain, 4);
  EXPECT_EQ(plan.nodes.size(), 4U);
  // Even spacing is best for uniform weights: 5 stretches of 1,000 or so.
  EXPECT_EQ(TreeCost(chain, plan.nodes), 5 * (999 * 1000 / 2) + 1000);
  EXPECT_EQ(PlaceOnTreeAtPrice(star, 6).size(), 5000U / 7);
}

// What the evictor does instead (docs/PREFIX_CACHE.md section 3): from everything placed, the least loss goes first and
// its neighbours are valued again. On trees whose weights are known it saves a little less than the solver.
TEST(TreeLagrangian, DroppingTheLeastLossStaysWithinAFewPercent) {
  SplitMix64 random(17);
  double lost_sum = 0;
  int cases = 0;
  for (const int32_t reach : {1, 4, 200}) {
    for (int i = 0; i < 20; ++i) {
      const std::vector<TreeNode> tree = RandomTree(random, 200, reach, 800, 100);
      const int64_t none = TreeCost(tree, {});
      for (const int32_t places : {10, 40, 100}) {
        std::vector<int32_t> kept(tree.size());
        std::iota(kept.begin(), kept.end(), 0);
        while (std::ssize(kept) > places) {
          const std::vector<int64_t> loss = TreeMarginals(tree, kept);
          kept.erase(std::min_element(kept.begin(), kept.end(),
                                      [&](const int32_t a, const int32_t b) { return loss[a] < loss[b]; }));
        }
        const auto solved = static_cast<double>(none - TreeCost(tree, PlaceOnTreeWithin(tree, places).nodes));
        const auto dropped = static_cast<double>(none - TreeCost(tree, kept));
        EXPECT_LE(dropped, solved * 1.001);
        lost_sum += 1 - dropped / solved;
        ++cases;
      }
    }
  }
  RecordProperty("lost_mean_per_mille", static_cast<int>(1000 * lost_sum / cases));
  EXPECT_LT(lost_sum / cases, 0.03);
  EXPECT_GT(lost_sum / cases, 0.0);
}

}  // namespace
}  // namespace invar::cache
