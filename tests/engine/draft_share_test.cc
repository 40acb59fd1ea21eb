// Memory that drafters and full KV share: who has how much of it, and that no byte is anybody's twice.
#include "engine/loop/draft_share.h"

#include <gtest/gtest.h>

#include "cache/cache_manager.h"
#include "engine/loop/bind_model.h"

namespace invar::engine {
namespace {

constexpr int64_t kPage = 64 << 10;
constexpr cache::StateShape kShape{.page_bytes = kPage, .state_bytes = 0};

// Ten pages of its own, eight that are shared.
struct Rig {
  cache::CacheManager cache{
      {.shape = kShape, .budget_bytes = 10 * kPage, .shared_bytes = 8 * kPage, .slots_without_bytes = 4}};
  cache::CacheMemory drafts{kShape, 8 * kPage, 0, cache::Backing::kMemory};
  DraftShare share{8 * kPage, cache, drafts};
};

TEST(DraftShare, AllIsTheDraftersAtFirst) {
  Rig rig;
  EXPECT_EQ(rig.share.drafters_bytes(), 8 * kPage);
  EXPECT_EQ(rig.drafts.budget_bytes(), 8 * kPage);
  EXPECT_EQ(rig.cache.memory().used_bytes(), 8 * kPage);
  EXPECT_EQ(rig.cache.memory().budget_bytes(), 18 * kPage);
}

TEST(DraftShare, DraftersGiveWhatTheyDoNotHold) {
  Rig rig;
  const auto page = rig.drafts.TakePage(cache::Fill::kNone);
  const auto body = rig.drafts.Reserve(3 * kPage / 2);
  rig.share.Fit(/*wanted_bytes=*/0, /*free_bytes=*/0, 0);
  EXPECT_EQ(rig.share.drafters_bytes(), 5 * kPage / 2);
  EXPECT_FALSE(rig.drafts.TakePage(cache::Fill::kNone).has_value()) << "what was given is not theirs any more";
  EXPECT_EQ(rig.cache.memory().used_bytes(), 5 * kPage / 2);
}

TEST(DraftShare, DraftersGetNoMoreThanSequencesLeave) {
  Rig rig;
  rig.share.Fit(0, 0, 0);
  const std::vector<cache::PageRef> held = rig.cache.TakePages(15, 0);
  rig.share.Fit(8 * kPage, 3 * kPage, 0);
  EXPECT_EQ(rig.share.drafters_bytes(), 3 * kPage);
  rig.share.Fit(8 * kPage, 0, 0);
  EXPECT_EQ(rig.share.drafters_bytes(), 3 * kPage) << "what they have they keep";
  rig.share.Fit(kPage, 0, 0);
  EXPECT_EQ(rig.share.drafters_bytes(), kPage);
}

TEST(DraftShare, WithoutASlowTierNothingIsShared) {
  cache::CacheManager cache{{.shape = kShape, .budget_bytes = 10 * kPage, .slots_without_bytes = 4}};
  cache::CacheMemory drafts{kShape, 8 * kPage, 0, cache::Backing::kMemory};
  DraftShare share(0, cache, drafts);
  share.Fit(0, 10 * kPage, 0);
  EXPECT_EQ(share.drafters_bytes(), 0);
  EXPECT_EQ(drafts.budget_bytes(), 8 * kPage);
  EXPECT_EQ(cache.memory().used_bytes(), 0);
}

// Full KV must lose nothing by the rounding of two parts where one would round once.
TEST(DraftShare, WhatDraftersDoNotHaveIsPagesOfSequences) {
  models::ModelSpec spec;
  spec.page_bytes = kPage;
  EngineOptions options;
  options.draft_tokens_max = 0;
  options.max_running = 4;
  options.kv_budget_bytes = 17 * kPage + 2 * kPage / 3;
  options.draft_memory_bytes = 17 * kPage + 2 * kPage / 3;
  options.slow_tier.path = "somewhere";
  const MemoryPlan plan = PlanMemory(spec, options).value();
  EXPECT_EQ(plan.pages, 17);
  EXPECT_EQ(plan.PagesBeside(options.draft_memory_bytes), 17);
  EXPECT_EQ(plan.PagesBeside(0), 35);
  options.slow_tier.path.clear();
  EXPECT_EQ(PlanMemory(spec, options).value().PagesBeside(0), 17);
}

}  // namespace
}  // namespace invar::engine
