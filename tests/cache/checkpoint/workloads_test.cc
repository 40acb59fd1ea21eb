// The placements on made-up workloads: mean recomputed tokens of each policy against a table that an independent
// prototype measured, the gains over the best fixed baseline, and what learning is worth online.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "bench/workloads/depths.h"
#include "bench/workloads/online_documents.h"
#include "cache/checkpoint/optimal_dp.h"
#include "cache/checkpoint/placement.h"

namespace invar::cache {
namespace {

constexpr int32_t kLength = 8192;
constexpr int32_t kDraws = 200'000;

const Demand& DemandNamed(const std::string& workload) {
  static std::map<std::string, Demand> demands;
  Demand& demand = demands[workload];
  if (demand.empty()) {
    demand = DemandOfDepths(bench::DrawDepths(*bench::FindDepthWorkload(workload), kLength, kDraws, 1), kLength);
  }
  return demand;
}

double MeanTokens(const int64_t cost) { return static_cast<double>(cost) / (static_cast<double>(kWeightOne) * kDraws); }

double MeanOf(const std::string_view policy, const DemandView demand, const int32_t places, const DemandView judged) {
  return MeanTokens(
      RecomputeCost(judged, MakePlacement(policy)->Place({.demand = demand, .length = kLength, .places = places})));
}

struct Row {
  const char* workload;
  int32_t places;
  double optimal, on_grid, balanced, block, logarithmic, logarithmic_end;
};

class Table : public testing::TestWithParam<Row> {};

TEST_P(Table, IsReproducedWithinTwoPercent) {
  const Row& row = GetParam();
  const Demand& demand = DemandNamed(row.workload);
  const auto near = [](const double found, const double expected) {
    // The table is rounded to whole tokens.
    return std::abs(found - expected) <= 0.02 * expected + 0.5;
  };
  const auto check = [&](const char* const name, const double found, const double expected) {
    EXPECT_TRUE(near(found, expected)) << name << ": found " << found << ", the table has " << expected;
  };
  check("optimal", MeanOf("optimal-dp", demand, row.places, demand), row.optimal);
  check("on grid 64", MeanOf("optimal-dp", FoldToGrid(demand, 64), row.places, demand), row.on_grid);
  check("balanced", MeanOf("balanced", {}, row.places, demand), row.balanced);
  check("block", MeanOf("block", {}, row.places, demand), row.block);
  check("logarithmic", MeanOf("logarithmic", {}, row.places, demand), row.logarithmic);
  check("logarithmic-end", MeanOf("logarithmic-end", {}, row.places, demand), row.logarithmic_end);
}

INSTANTIATE_TEST_SUITE_P(
    Mean, Table,
    testing::Values(
        Row{"quality", 2, 372, 376, 2527, 3803, 3803, 1886}, Row{"quality", 4, 203, 209, 1463, 1834, 3771, 494},
        Row{"quality", 8, 104, 107, 793, 888, 3769, 134}, Row{"quality", 16, 52, 63, 394, 415, 3769, 129},
        Row{"quality", 32, 26, 45, 181, 184, 3769, 129}, Row{"narrative", 2, 1198, 1199, 1404, 2140, 2140, 1804},
        Row{"narrative", 4, 667, 669, 843, 1076, 1330, 1666}, Row{"narrative", 8, 353, 354, 446, 514, 1281, 1662},
        Row{"narrative", 16, 193, 195, 240, 258, 1281, 1662}, Row{"narrative", 32, 102, 103, 124, 128, 1281, 1662},
        Row{"system-prompts", 2, 377, 378, 639, 646, 646, 656}, Row{"system-prompts", 4, 246, 251, 521, 596, 438, 643},
        Row{"system-prompts", 8, 124, 134, 379, 422, 192, 639}, Row{"system-prompts", 16, 63, 71, 250, 250, 192, 639},
        Row{"system-prompts", 32, 32, 41, 125, 122, 192, 639}),
    [](const auto& info) {
      std::string name = std::string(info.param.workload) + "_" + std::to_string(info.param.places);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(Workloads, HaveTheMeansOfTheirShapes) {
  const std::map<std::string, double> means = {{"quality", 7851}, {"narrative", 4039}, {"system-prompts", 746}};
  for (const auto& [name, mean] : means) {
    EXPECT_NEAR(MeanTokens(RecomputeCost(DemandNamed(name), {})), mean, 0.01 * mean) << name;
  }
}

TEST(Workloads, AreTheSameForTheSameSeedAndInsideThePrefix) {
  for (const bench::DepthWorkload& workload : bench::DepthWorkloads()) {
    EXPECT_EQ(bench::DrawDepths(workload, 1000, 500, 7), bench::DrawDepths(workload, 1000, 500, 7));
    EXPECT_NE(bench::DrawDepths(workload, 1000, 500, 7), bench::DrawDepths(workload, 1000, 500, 8));
    for (const int32_t length : {1, 2, 100, 8192}) {
      for (const int32_t depth : bench::DrawDepths(workload, length, 2000, 9)) {
        ASSERT_GE(depth, 1) << workload.name;
        ASSERT_LE(depth, length) << workload.name;
      }
    }
  }
  EXPECT_EQ(bench::FindDepthWorkload("none"), nullptr);
}

double ShareOfBestBaseline(const std::string& workload, const int32_t places) {
  const Demand& demand = DemandNamed(workload);
  double best = 1e9;
  for (const char* const name : {"balanced", "block", "logarithmic", "logarithmic-end"}) {
    best = std::min(best, MeanOf(name, {}, places, demand));
  }
  return MeanOf("optimal-dp", demand, places, demand) / best;
}

TEST(Workloads, TheOptimumBeatsTheBestFixedBaselineByAMargin) {
  for (const int32_t places : {2, 4}) EXPECT_LE(ShareOfBestBaseline("quality", places), 0.45) << places;
  for (const int32_t places : {2, 4, 8, 16, 32}) EXPECT_LE(ShareOfBestBaseline("narrative", places), 0.86) << places;
  for (const int32_t places : {2, 4, 8}) EXPECT_LE(ShareOfBestBaseline("system-prompts", places), 0.66) << places;
}

TEST(Workloads, AThirdOfABlockCachesCheckpointsRecomputesNoMore) {
  for (const char* const workload : {"quality", "system-prompts"}) {
    const Demand& demand = DemandNamed(workload);
    for (const int32_t block : {64, 128, 256, 512}) {
      const int32_t blocks = kLength / block;
      EXPECT_LE(MeanOf("optimal-dp", demand, blocks / 3, demand), MeanOf("block", {}, blocks, demand))
          << workload << " block " << block;
    }
  }
}

struct Online {
  const char* workload;
  int32_t places;
  bool one_length;
  double share_max;  // Of what branch-on-demand recomputes.
};

class LearnedPlacement : public testing::TestWithParam<Online> {};

TEST_P(LearnedPlacement, RecomputesAFractionOfWhatBranchOnDemandDoes) {
  const Online& row = GetParam();
  const bench::DepthWorkload& workload = *bench::FindDepthWorkload(row.workload);
  bench::OnlineOptions options = {.places = row.places};
  if (row.one_length) options.length_min = options.length_max = kLength;
  const auto run = [&](const bench::OnlinePolicy policy) { return RunOnline(workload, policy, options); };
  const double on_demand = run(bench::OnlinePolicy::kBranchOnDemand).recomputed_tokens;
  const bench::OnlineResult learned = run(bench::OnlinePolicy::kLearned);
  EXPECT_LE(learned.recomputed_tokens, row.share_max * on_demand)
      << "on demand " << on_demand << ", learned " << learned.recomputed_tokens << " by " << AnchorName(learned.anchor);
  EXPECT_GE(learned.recomputed_tokens, run(bench::OnlinePolicy::kHindsight).recomputed_tokens);
}

INSTANTIATE_TEST_SUITE_P(Online, LearnedPlacement,
                         testing::Values(Online{"quality", 2, false, 0.25}, Online{"quality", 4, false, 0.2},
                                         Online{"quality", 8, false, 0.1}, Online{"narrative", 4, false, 0.5},
                                         Online{"narrative", 8, false, 0.35}, Online{"system-prompts", 2, false, 0.8},
                                         Online{"system-prompts", 4, false, 0.65},
                                         Online{"system-prompts", 8, false, 0.45}, Online{"fluctuating", 2, true, 0.15},
                                         Online{"fluctuating", 4, true, 0.12}),
                         [](const auto& info) {
                           std::string name =
                               std::string(info.param.workload) + "_" + std::to_string(info.param.places);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace invar::cache
