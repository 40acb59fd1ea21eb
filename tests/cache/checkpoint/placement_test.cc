// Every registered policy: the promises of the face, and the formulas of the fixed ones.
#include "cache/checkpoint/placement.h"

#include <gtest/gtest.h>

#include "cache/checkpoint/optimal_dp.h"
#include "tests/cache/checkpoint/brute_force.h"

namespace invar::cache {
namespace {

std::vector<int32_t> Place(const std::string_view name, const int32_t length, const int32_t places,
                           const DemandView demand = {}) {
  return MakePlacement(name)->Place({.demand = demand, .length = length, .places = places});
}

class AnyPlacement : public testing::TestWithParam<std::string_view> {};

TEST_P(AnyPlacement, GivesAscendingPositionsInsideThePrefix) {
  SplitMix64 random(1);
  const auto policy = MakePlacement(GetParam());
  for (int round = 0; round < 500; ++round) {
    const int32_t length = round < 50 ? round + 1 : Pick(random, 1, 5000);
    const Demand demand = RandomDemand(random, std::min(length, 200), 9);
    std::vector<int32_t> fixed;
    for (int32_t position = Pick(random, 1, 50); position <= length; position += Pick(random, 1, 2000)) {
      fixed.push_back(position);
    }
    const auto positions = policy->Place({.demand = demand,
                                          .length = length,
                                          .places = Pick(random, 0, 20),
                                          .price = round % 2 == 0 ? 0 : 30,
                                          .fixed = fixed,
                                          .restore_tokens = Pick(random, 0, 3)});
    int32_t before = 0;
    for (const int32_t position : positions) {
      ASSERT_GT(position, before) << "length " << length;
      ASSERT_FALSE(std::binary_search(fixed.begin(), fixed.end(), position));
      before = position;
    }
    ASSERT_LE(before, length);
  }
}

TEST_P(AnyPlacement, IsPure) {
  const Demand demand = {{10, 3}, {50, 7}, {90, 1}};
  EXPECT_EQ(Place(GetParam(), 100, 3, demand), Place(GetParam(), 100, 3, demand));
  if (!MakePlacement(GetParam())->traits().reads_demand) {
    EXPECT_EQ(Place(GetParam(), 100, 3, demand), Place(GetParam(), 100, 3));
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, AnyPlacement, testing::ValuesIn(PlacementNames().begin(), PlacementNames().end()),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Registry, KnowsItsNamesAndNoOthers) {
  EXPECT_EQ(PlacementNames().front(), "optimal-dp");
  EXPECT_EQ(MakePlacement("even"), nullptr);
  EXPECT_EQ(MakePlacement(""), nullptr);
}

TEST(Baselines, FollowTheirFormulas) {
  using P = std::vector<int32_t>;
  EXPECT_EQ(Place("balanced", 100, 3), (P{25, 50, 75}));
  EXPECT_EQ(Place("block", 100, 4), (P{25, 50, 75, 100}));
  EXPECT_EQ(Place("logarithmic", 100, 4), (P{12, 25, 50, 100}));
  EXPECT_EQ(Place("logarithmic-end", 100, 3), (P{50, 75, 88}));
  EXPECT_EQ(Place("sqrt", 100, 1), (P{10, 20, 30, 40, 50, 60, 70, 80, 90, 100}));
  EXPECT_EQ(Place("sqrt", 8192, 0).size(), 91U);
  EXPECT_EQ(Place("end-only", 100, 0), (P{100}));
  EXPECT_EQ(Place("branch-on-demand", 100, 0), (P{100}));
  EXPECT_EQ(Place("none", 100, 9), P{});
  EXPECT_EQ(Place("kv-only", 100, 9), P{});
}

TEST(Baselines, StayDistinctWherePrefixesAreShort) {
  EXPECT_EQ(Place("balanced", 2, 8), (std::vector<int32_t>{1}));
  EXPECT_EQ(Place("block", 3, 8), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(Place("logarithmic", 1, 64), (std::vector<int32_t>{1}));
}

// The whole problem: price, places and fixed checkpoints together, against every subset.
TEST(OptimalDpPlacement, EqualsBruteForceBetweenFixedCheckpoints) {
  SplitMix64 random(2);
  const auto policy = MakePlacement("optimal-dp");
  for (int round = 0; round < 3000; ++round) {
    const int32_t length = Pick(random, 1, 10);
    const Demand demand = RandomDemand(random, length, 6);
    std::vector<int32_t> fixed;
    for (int32_t position = 1; position <= length; ++position) {
      if (Pick(random, 0, 4) == 0) fixed.push_back(position);
    }
    const int32_t places = Pick(random, 0, 5);
    const int64_t price = Pick(random, 0, 15);
    const auto total = [&](const std::vector<int32_t>& placed) {
      std::vector<int32_t> all = fixed;
      all.insert(all.end(), placed.begin(), placed.end());
      std::sort(all.begin(), all.end());
      return CostByDefinition(demand, all, 0) + price * static_cast<int64_t>(placed.size());
    };
    int64_t best = total({});
    ForEachSubset(length, places, [&](const std::vector<int32_t>& subset) { best = std::min(best, total(subset)); });
    const auto placed =
        policy->Place({.demand = demand, .length = length, .places = places, .price = price, .fixed = fixed});
    ASSERT_LE(placed.size(), static_cast<size_t>(places));
    ASSERT_EQ(total(placed), best) << AsCode(demand) << " places " << places << " price " << price << " fixed "
                                   << testing::PrintToString(fixed);
  }
}

}  // namespace
}  // namespace invar::cache
