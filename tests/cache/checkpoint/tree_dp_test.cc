// The exact tree solver against every subset of nodes, and against the chain solver where the tree is a chain.
#include "cache/checkpoint/tree_dp.h"

#include <gtest/gtest.h>

#include "cache/checkpoint/optimal_dp.h"
#include "tests/cache/checkpoint/random_tree.h"

namespace invar::cache {
namespace {

TEST(TreeDp, EqualsBruteForce) {
  SplitMix64 random(1);
  int cases = 0;
  for (int round = 0; round < 1500; ++round) {
    const int32_t nodes = Pick(random, 1, 11);
    const auto tree = RandomTree(random, nodes, Pick(random, 1, nodes + 1), 6, 5);
    std::vector<int64_t> best(nodes + 1, INT64_MAX);
    for (uint32_t bits = 0; bits < (1U << nodes); ++bits) {
      int64_t& cost = best[__builtin_popcount(bits)];
      cost = std::min(cost, TreeCostByDefinition(tree, bits));
    }
    for (int32_t places = 0; places <= nodes; ++places, ++cases) {
      if (places > 0) best[places] = std::min(best[places], best[places - 1]);
      const std::vector<int32_t> placed = PlaceOnTree(tree, places);
      ASSERT_LE(placed.size(), static_cast<size_t>(places));
      ASSERT_EQ(TreeCostByDefinition(tree, Bits(placed)), best[places]) << AsCode(tree) << " places " << places;
      ASSERT_EQ(TreeCost(tree, placed), best[places]) << AsCode(tree) << " places " << places;
    }
  }
  EXPECT_GE(cases, 5000);
}

TEST(TreeDp, EqualsTheChainSolverOnAChain) {
  SplitMix64 random(2);
  for (int round = 0; round < 200; ++round) {
    const auto tree = RandomTree(random, 30, 1, 9, 9);
    Demand demand;
    for (const TreeNode& node : tree) {
      if (node.weight > 0) demand.push_back({node.depth, node.weight});
    }
    const ChainDp chain(demand, 6);
    for (int32_t places = 0; places <= chain.places(); ++places) {
      ASSERT_EQ(TreeCost(tree, PlaceOnTree(tree, places)), chain.Cost(places)) << AsCode(tree) << " places " << places;
    }
  }
}

TEST(TreeDp, MarginalsAreDifferencesOfCost) {
  SplitMix64 random(3);
  for (int round = 0; round < 500; ++round) {
    const auto tree = RandomTree(random, 10, 5, 6, 5);
    const uint32_t bits = static_cast<uint32_t>(random.Next()) & 1023U;
    std::vector<int32_t> placed;
    for (int32_t v = 0; v < 10; ++v) {
      if ((bits >> v & 1U) != 0) placed.push_back(v);
    }
    const std::vector<int64_t> marginals = TreeMarginals(tree, placed);
    for (int32_t v = 0; v < 10; ++v) {
      const int64_t with = TreeCostByDefinition(tree, bits | 1U << v);
      const int64_t without = TreeCostByDefinition(tree, bits & ~(1U << v));
      ASSERT_EQ(marginals[v], without - with) << AsCode(tree) << " bits " << bits << " node " << v;
    }
  }
}

TEST(TreeDp, GainsOnATreeMayGrow) {
  // Three leaves below one trunk: two places are worth less than twice one, three are worth more than that.
  const std::vector<TreeNode> tree = {{-1, 100, 0}, {0, 160, 1}, {0, 160, 1}, {0, 160, 1}};
  std::vector<int64_t> savings;
  for (int32_t places = 1; places <= 3; ++places) {
    savings.push_back(TreeCost(tree, {}) - TreeCost(tree, PlaceOnTree(tree, places)));
  }
  EXPECT_EQ(savings, (std::vector<int64_t>{300, 360, 480}));
}

TEST(TreeDp, TakesAnEmptyTree) {
  EXPECT_TRUE(PlaceOnTree({}, 3).empty());
  EXPECT_EQ(TreeCost({}, {}), 0);
}

TEST(TreeDpDeathTest, RefusesWhatIsNoTree) {
  EXPECT_DEATH(CheckTree(std::vector<TreeNode>{{0, 1, 1}}), "parents come first");
  EXPECT_DEATH(CheckTree(std::vector<TreeNode>{{-1, 5, 1}, {0, 5, 1}}), "grow downwards");
  EXPECT_DEATH(CheckTree(std::vector<TreeNode>{{-1, 5, -1}}), "not negative");
}

}  // namespace
}  // namespace invar::cache
