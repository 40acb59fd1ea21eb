// The report of a tree adds up, is bounded, and shows the heaviest part.
#include "cache/tree/tree_walk.h"

#include <gtest/gtest.h>

#include <numeric>

#include "cache/cache_manager.h"
#include "tests/cache/token_lists.h"

namespace invar::cache {
namespace {

class Rig {
 public:
  void Run(const Tokens& tokens, const Scope& scope) {
    const auto n = static_cast<int32_t>(tokens.size());
    PrefixLease lease =
        cache_.Acquire({.scope = scope, .tokens = tokens, .prompt_tokens = n, .resume_limit = n - 1}, ++now_);
    cache_.Extend(lease, n, ++now_);
    std::vector<StateEmission> emissions;
    cache_.Emit(lease, lease.match().state_tokens, n, now_, emissions);
    cache_.Commit(lease, tokens, now_);
    cache_.Release(std::move(lease), tokens, CheckpointKind::kEnd, ++now_);
  }
  TreeReport Report(const TreeReportOptions& options) const { return cache_.ReportTree(options, now_ + 1000); }
  CacheManager& cache() { return cache_; }

 private:
  TimeNs now_ = 0;
  CacheManager cache_{
      {.shape = {.page_bytes = 64, .state_bytes = 256}, .budget_bytes = 1 << 24, .slots_without_bytes = 8}};
};

Scope Of(const std::string& tenant, const std::string& salt = {}) {
  return {.tenant = tenant, .salt = salt, .provenance = {}};
}
int64_t Sum(const TreeTotals& totals) {
  return std::accumulate(totals.checkpoints.begin(), totals.checkpoints.end(), int64_t{0});
}

TEST(TreeReport, AddsUpByTenantAndWithTheManagersOwnNumbers) {
  Rig rig;
  for (int i = 0; i < 30; ++i) {
    rig.Run(Join(Ids(0, 100), Ids(1000 * (i + 1), 50 + 7 * i)), Of(i % 3 == 0 ? "blue" : "red", i % 2 == 0 ? "" : "s"));
  }
  const TreeReport report = rig.Report({.nodes_max = 10'000});
  ASSERT_EQ(report.tenants.size(), 2u);
  EXPECT_EQ(report.tenants[0].name, "blue");
  EXPECT_EQ(report.tenants[1].name, "red");
  EXPECT_EQ(report.all.scopes, 4);
  EXPECT_EQ(report.all.nodes, rig.cache().Report().nodes);
  EXPECT_EQ(Sum(report.all), rig.cache().Report().checkpoints);
  for (const auto member : {&TreeTotals::scopes, &TreeTotals::nodes, &TreeTotals::kv_tokens, &TreeTotals::hits}) {
    EXPECT_EQ(report.tenants[0].totals.*member + report.tenants[1].totals.*member, report.all.*member);
  }
  EXPECT_EQ(static_cast<int64_t>(report.nodes.size()), report.all.nodes) << "all of them fit";
  int64_t tokens = 0, hits = 0, checkpoints = 0;
  for (const TreeNodeReport& node : report.nodes) {
    tokens += node.end - node.begin;
    hits += node.hits;
    checkpoints += node.checkpoint.has_value() ? 1 : 0;
    EXPECT_EQ(node.children_left_out, 0);
    if (node.parent < 0) {
      EXPECT_EQ(node.begin, 0);
    } else {
      EXPECT_EQ(node.begin, report.nodes[node.parent].end);
      EXPECT_EQ(node.scope, report.nodes[node.parent].scope);
    }
  }
  EXPECT_EQ(tokens, report.all.kv_tokens);
  EXPECT_EQ(hits, report.all.hits);
  EXPECT_EQ(checkpoints, Sum(report.all));
  EXPECT_GT(hits, 0);
}

TEST(TreeReport, ShowsOneTenantNothingOfAnother) {
  Rig rig;
  rig.Run(Ids(0, 300), Of("red"));
  rig.Run(Ids(0, 500), Of("blue"));
  const TreeReport report = rig.Report({.tenant = "red", .nodes_max = 100});
  ASSERT_EQ(report.tenants.size(), 1u);
  EXPECT_EQ(report.tenants[0].name, "red");
  EXPECT_EQ(report.all.kv_tokens, 300);
  for (const TreeNodeReport& node : report.nodes) EXPECT_LE(node.end, 300);
  EXPECT_TRUE(rig.Report({.tenant = "green", .nodes_max = 100}).nodes.empty());
}

TEST(TreeReport, IsBoundedAndShowsTheHeaviestPartWithAllAboveIt) {
  Rig rig;
  for (int i = 0; i < 200; ++i) rig.Run(Join(Ids(0, 64), Ids(1000 * (i + 1), 64 + i)), Of("red"));
  const TreeReport report = rig.Report({.nodes_max = 20});
  ASSERT_EQ(report.nodes.size(), 20u);
  EXPECT_GT(report.all.nodes, 200);
  int64_t lightest = INT64_MAX;
  for (size_t i = 0; i < report.nodes.size(); ++i) {
    EXPECT_LT(report.nodes[i].parent, static_cast<int32_t>(i)) << "parents come before children";
    if (report.nodes[i].begin == 64) lightest = std::min(lightest, report.nodes[i].tokens_below);
  }
  EXPECT_GT(lightest, 64 + 175) << "of the branches the longest";
  EXPECT_GT(report.nodes[0].children_left_out, 150);
  EXPECT_TRUE(rig.Report({.nodes_max = 0}).nodes.empty());
}

TEST(TreeReport, IsEmptyWithoutATree) {
  const TreeReport report = Rig().Report({.nodes_max = 10});
  EXPECT_EQ(report.all.nodes, 0);
  EXPECT_TRUE(report.tenants.empty());
}

}  // namespace
}  // namespace invar::cache
