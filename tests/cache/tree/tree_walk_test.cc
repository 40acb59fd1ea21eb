// The report of a tree adds up, is bounded, and shows the heaviest part.
#include "cache/tree_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/split_mix64.h"
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
  // In parts of so many nodes.
  TreeReport Report(const TreeReportOptions& options, const int32_t nodes_at_once = 1'000'000) const {
    TreeWalk walk(options);
    while (!walk.is_done()) cache_.Continue(walk, nodes_at_once);
    return walk.Report(now_ + 1000);
  }
  TimeNs now() const { return now_; }
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

// A number that ran on through all trees would say how many those of other tenants are.
TEST(TreeReport, NumbersTheTreesOfEachTenantFromOneOn) {
  Rig rig;
  for (const char* const salt : {"", "a", "b"}) rig.Run(Ids(0, 300), Of("blue", salt));
  for (const char* const salt : {"", "a"}) rig.Run(Ids(0, 500), Of("red", salt));
  std::map<std::string, std::set<int32_t>> numbers;
  const TreeReport report = rig.Report({.nodes_max = 100});
  for (const TreeNodeReport& node : report.nodes) numbers[report.tenants[node.tenant].name].insert(node.scope);
  EXPECT_EQ(numbers["blue"], (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(numbers["red"], (std::set<int32_t>{1, 2}));
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

// A chat of a tenant: turns of a few tokens out of few, so that paths part, meet and split.
Tokens Chat(SplitMix64& random) {
  Tokens tokens;
  for (auto left = random.Next() % 200; left > 0; --left) tokens.emplace_back(static_cast<int32_t>(random.Next() % 3));
  return tokens.empty() ? Ids(0, 1) : tokens;
}

TEST(TreeReport, IsTheSameInPartsOfAnySize) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rig rig;
    SplitMix64 random(seed);
    for (int i = 0; i < 60; ++i)
      rig.Run(Chat(random), Of(std::to_string(random.Next() % 4), random.Next() % 2 == 0 ? "" : "s"));
    for (const TreeReportOptions& options : {TreeReportOptions{.nodes_max = 1000}, TreeReportOptions{.nodes_max = 20},
                                             TreeReportOptions{.tenant = "2", .nodes_max = 20}}) {
      const TreeReport whole = rig.Report(options);
      EXPECT_GT(whole.nodes.size(), 5u);
      for (const int32_t part : {1, 2, 7, 64}) {
        const TreeReport parts = rig.Report(options, part);
        SCOPED_TRACE("seed " + std::to_string(seed) + " parts of " + std::to_string(part));
        EXPECT_EQ(parts.all.nodes, whole.all.nodes);
        EXPECT_EQ(parts.all.scopes, whole.all.scopes);
        EXPECT_EQ(parts.all.kv_tokens, whole.all.kv_tokens);
        EXPECT_EQ(parts.all.hits, whole.all.hits);
        EXPECT_EQ(parts.all.checkpoints, whole.all.checkpoints);
        ASSERT_EQ(parts.tenants.size(), whole.tenants.size());
        ASSERT_EQ(parts.nodes.size(), whole.nodes.size());
        for (size_t i = 0; i < whole.nodes.size(); ++i) {
          EXPECT_EQ(parts.nodes[i].parent, whole.nodes[i].parent) << i;
          EXPECT_EQ(parts.nodes[i].begin, whole.nodes[i].begin) << i;
          EXPECT_EQ(parts.nodes[i].end, whole.nodes[i].end) << i;
          EXPECT_EQ(parts.nodes[i].scope, whole.nodes[i].scope) << i;
          EXPECT_EQ(parts.nodes[i].tokens_below, whole.nodes[i].tokens_below) << i;
          EXPECT_EQ(parts.nodes[i].children_left_out, whole.nodes[i].children_left_out) << i;
        }
      }
    }
  }
}

// Nodes come, split and go between the parts: the walk ends, what it shows hangs together, and the tenants that nobody
// touched are there to the token.
TEST(TreeReport, OfATreeThatChangesMeanwhileHangsTogether) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rig rig;
    SplitMix64 random(seed);
    const std::vector<std::string> quiet = {"a", "c", "e"};
    const std::vector<std::string> busy = {"b", "d"};
    for (int i = 0; i < 30; ++i) {
      rig.Run(Chat(random), Of(quiet[random.Next() % 3]));
      rig.Run(Chat(random), Of(busy[random.Next() % 2], random.Next() % 2 == 0 ? "" : "s"));
    }
    const TreeReport before = rig.Report({.nodes_max = 1000});
    TreeWalk walk({.nodes_max = 1000});
    const auto part = static_cast<int32_t>(1 + random.Next() % 9);
    for (int parts = 0; !walk.is_done(); ++parts) {
      ASSERT_LT(parts, 5000) << "it comes to an end";
      rig.cache().Continue(walk, part);
      const std::string& tenant = busy[random.Next() % 2];
      if (parts > 500) continue;  // It may run after what comes, but not for ever.
      if (random.Next() % 12 == 0) {
        rig.cache().Flush(
            {.tenant = tenant, .salt = random.Next() % 2 == 0 ? std::optional<std::string>("s") : std::nullopt},
            rig.now());
      } else {
        rig.Run(Chat(random), Of(tenant, random.Next() % 2 == 0 ? "" : "s"));
      }
    }
    const TreeReport report = walk.Report(rig.now());
    std::map<std::string, int64_t> tokens;
    for (size_t i = 0; i < report.nodes.size(); ++i) {
      const TreeNodeReport& node = report.nodes[i];
      ASSERT_LT(node.parent, static_cast<int32_t>(i));
      tokens[report.tenants[node.tenant].name] += node.end - node.begin;
      if (node.parent < 0) continue;
      EXPECT_EQ(node.tenant, report.nodes[node.parent].tenant);
      EXPECT_EQ(node.scope, report.nodes[node.parent].scope);
      EXPECT_GE(node.end, report.nodes[node.parent].end);
    }
    for (const TreeReport::Tenant& tenant : before.tenants) {
      if (std::ranges::find(quiet, tenant.name) == quiet.end()) continue;
      EXPECT_EQ(tokens[tenant.name], tenant.totals.kv_tokens) << tenant.name;
      const auto now = std::ranges::find(report.tenants, tenant.name, &TreeReport::Tenant::name);
      ASSERT_NE(now, report.tenants.end());
      EXPECT_EQ(now->totals.nodes, tenant.totals.nodes);
      EXPECT_EQ(now->totals.kv_tokens, tenant.totals.kv_tokens);
    }
  }
}

TEST(TreeReport, GoesOnlyAsFarAsItIsTold) {
  Rig rig;
  for (int i = 0; i < 50; ++i) rig.Run(Ids(1000 * i, 50), Of("red"));
  TreeWalk walk({});
  int parts = 0;
  for (; !walk.is_done(); ++parts) rig.cache().Continue(walk, 10);
  EXPECT_GE(parts, rig.cache().Report().nodes / 10);
  EXPECT_EQ(walk.Report(0).all.nodes, rig.cache().Report().nodes);
}

TEST(TreeReport, IsEmptyWithoutATree) {
  const TreeReport report = Rig().Report({.nodes_max = 10});
  EXPECT_EQ(report.all.nodes, 0);
  EXPECT_TRUE(report.tenants.empty());
}

}  // namespace
}  // namespace invar::cache
