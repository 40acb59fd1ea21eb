// The manager over tiers: what memory gives up comes back, equal to the byte, after eviction and after a restart,
// and whatever a tier does wrong costs tokens and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cache/evict/orders.h"
#include "cache/prefix/prefix_cache.h"
#include "cache/prefix/tier_link.h"
#include "cache/tiers/stores.h"
#include "tests/cache/tiered_rig.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/cache/token_lists.h"

namespace invar::cache {
namespace {

class TieredCache : public testing::TestWithParam<bool> {
 protected:
  const StateShape& shape() const { return GetParam() ? kHybrid : kDense; }
  // Tiers restore dense models by whole pages.
  int32_t Restored(const int32_t tokens) const { return GetParam() ? tokens : tokens / 64 * 64; }

  RealClock clock_;
};

TEST_P(TieredCache, BringsBackWhatMemoryGaveUp) {
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(Threaded(MakeRamStore(int64_t{64} << 20), clock_));
  Rig rig(shape(), 8 * 512 + 3 * 256, std::move(tiers));
  for (const int32_t n : {65, 128, 200, 255}) {
    rig.Whole(Ids(1000 * n, n));
    for (int i = 0; i < 4; ++i) rig.Whole(Ids(1'000'000 + 1000 * (n * 10 + i), 250));  // Pushes it out.
    rig.Persist();                                                                     // Waits for the writes.
    const PrefixMatch match = rig.Whole(Join(Ids(1000 * n, n), Ids(7, 20)));
    EXPECT_GE(match.state_tokens, Restored(n)) << n;
    EXPECT_EQ(rig.tier(), "ram");
  }
}

// Each unit that goes is written under the names of all pages that lead to it, which are hashes of all tokens up to
// there. They are worked out once and taken from the nodes then: a name made wrong there is written as another page.
TEST_P(TieredCache, PagesOfAPathAreNamedOnceHoweverManyUnitsHangOnIt) {
  const CacheOptions options{.shape = shape(), .budget_bytes = 1 << 20, .slots_without_bytes = 4, .identity = "model"};
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(Threaded(MakeRamStore(int64_t{64} << 20), clock_));
  TierLink link(options, std::move(tiers));
  InlinePlanExecutor executor;
  const std::unique_ptr<EvictionOrder> order = MakeEvictionOrder("node-demand");
  PrefixCache memory(options, *order, executor, &link);
  Tokens chat;
  for (int32_t turn = 0; turn < 20; ++turn) {
    chat = Join(std::move(chat), Ids(1000 * turn, 64));
    const auto n = static_cast<int32_t>(chat.size());
    PrefixLease lease =
        memory.Acquire({.scope = {}, .tokens = chat, .prompt_tokens = n, .resume_limit = n - 1}, clock_.Now());
    memory.Extend(lease, n, clock_.Now());
    memory.Release(std::move(lease), chat, CheckpointKind::kEnd, clock_.Now());
  }
  const auto pages_written = [&] {
    (void)link.Persist(memory, clock_, clock_.Now() + int64_t{20} * 1'000'000'000, {});
    PlacementReport report;
    link.AddTo(report);
    return report.tier_writes.pages;
  };
  EXPECT_EQ(pages_written(), 20);
  EXPECT_EQ(pages_written(), 20);
  const std::vector<Node*> nodes = memory.ResumableNodes();
  Node* deepest = *std::ranges::max_element(nodes, {}, &Node::end);
  int32_t named = 0;
  for (Node* node = deepest; !node->is_root(); node = node->parent) {
    EXPECT_EQ(static_cast<int32_t>(node->names.size()), node->whole_pages());
    named += node->whole_pages();
  }
  EXPECT_EQ(named, 20);
  while (deepest->names.empty()) deepest = deepest->parent;
  deepest->names.back().key.fill(std::byte(7));
  EXPECT_EQ(pages_written(), 21);
}

TEST_P(TieredCache, SurvivesARestart) {
  TempFolder folder;
  const std::unique_ptr<FileLayer> files = MakeSystemFiles();
  const auto open = [&](const std::string& identity) {
    std::vector<std::unique_ptr<Tier>> tiers;
    tiers.push_back(Threaded(
        MakeDiskStore({.path = folder.path() + "/" + identity, .budget_bytes = 1 << 24, .store_id = identity}, *files)
            .value(),
        clock_));
    return tiers;
  };
  const Tokens chat = Ids(0, 777);
  {
    Rig rig(shape(), 1 << 20, open("model"));
    rig.Whole(chat);
    rig.Persist();
  }
  Rig rig(shape(), 1 << 20, open("model"));
  EXPECT_EQ(rig.Whole(Join(chat, Ids(5000, 30))).state_tokens, Restored(777));
  EXPECT_EQ(rig.tier(), "disk");
  EXPECT_EQ(rig.cache().Report().checkpoints_made[static_cast<size_t>(CheckpointKind::kBrought)], GetParam() ? 1 : 0);
  // And from memory the next time.
  EXPECT_EQ(rig.Whole(Join(chat, Ids(6000, 30))).kv_tokens, 777);
}

// Records say whose they are, so what an earlier process left is found without having met its scopes.
TEST_P(TieredCache, ATenantIsFlushedWithAllItsSaltsAfterARestart) {
  TempFolder folder;
  const std::unique_ptr<FileLayer> files = MakeSystemFiles();
  const auto open = [&] {
    std::vector<std::unique_ptr<Tier>> tiers;
    tiers.push_back(Threaded(
        MakeDiskStore({.path = folder.path(), .budget_bytes = 1 << 24, .store_id = "model"}, *files).value(), clock_));
    return tiers;
  };
  const auto scope = [](const std::string& tenant, const std::string& salt) {
    return Scope{.tenant = tenant, .salt = salt, .provenance = {}};
  };
  const std::vector<Scope> all = {scope("a", ""), scope("a", "s"), scope("b", "t"), scope("b", "s")};
  {
    Rig rig(shape(), 1 << 20, open());
    for (const Scope& one : all) rig.Whole(Ids(0, 300), one);
    rig.Persist();
  }
  {
    Rig rig(shape(), 1 << 20, open());
    rig.cache().Flush({.tenant = "a"}, clock_.Now());
    rig.cache().Flush({.tenant = "b", .salt = "t"}, clock_.Now());
    rig.Persist();
  }
  Rig rig(shape(), 1 << 20, open());
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(rig.Whole(Ids(0, 300), all[i]).kv_tokens, 0) << i;
  EXPECT_GT(rig.Whole(Ids(0, 300), all[3]).kv_tokens, 0);
}

TEST_P(TieredCache, OthersTenantsSaltsAndModelsFindNothing) {
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(Threaded(MakeRamStore(int64_t{64} << 20), clock_));
  Rig rig(shape(), 1 << 20, std::move(tiers));
  const Tokens tokens = Ids(0, 300);
  const Scope mine{.tenant = "a", .salt = "s", .provenance = {}};
  rig.Whole(tokens, mine);
  rig.Persist();
  for (const Scope& scope :
       {Scope{.tenant = "b", .salt = "s", .provenance = {}}, Scope{.tenant = "a", .salt = {}, .provenance = {}},
        Scope{.tenant = "a", .salt = "s", .provenance = "centroid"}}) {
    EXPECT_EQ(rig.Whole(tokens, scope).kv_tokens, 0);
  }
}

TEST_P(TieredCache, WhatIsFlushedIsGoneFromTiersToo) {
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(Threaded(MakeRamStore(int64_t{64} << 20), clock_));
  Rig rig(shape(), 1 << 20, std::move(tiers));
  const Scope a{.tenant = "a", .salt = {}, .provenance = {}};
  const Scope b{.tenant = "b", .salt = {}, .provenance = {}};
  rig.Whole(Ids(0, 300), a);
  rig.Whole(Ids(0, 300), b);
  rig.Persist();
  rig.cache().Flush({.tenant = "a"}, clock_.Now());
  EXPECT_EQ(rig.Whole(Ids(0, 300), a).kv_tokens, 0);
  EXPECT_GT(rig.Whole(Ids(0, 300), b).kv_tokens, 0);
}

TEST_P(TieredCache, WhatIsFlushedDoesNotComeBackByALoadUnderWay) {
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(Threaded(MakeRamStore(int64_t{64} << 20), clock_));
  Rig rig(shape(), 1 << 20, std::move(tiers));
  const Tokens tokens = Ids(0, 300);
  rig.Whole(tokens);
  rig.Persist();
  rig.cache().Flush({.part = CachedPart::kKv}, clock_.Now());
  const std::optional<int64_t> ticket =
      rig.cache().Prefetch({.scope = {}, .tokens = tokens, .prompt_tokens = 300, .resume_limit = 299}, 0, clock_.Now());
  ASSERT_TRUE(ticket.has_value());
  rig.cache().Flush({}, clock_.Now());
  std::vector<Arrival> arrivals;
  while (arrivals.empty()) arrivals = rig.cache().TakeArrivals(clock_.Now());
  EXPECT_EQ(arrivals[0].tier, "");
  EXPECT_EQ(rig.cache().memory().used_bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, TieredCache, testing::Bool(),
                         [](const auto& info) { return info.param ? "Hybrid" : "Dense"; });

}  // namespace
}  // namespace invar::cache
