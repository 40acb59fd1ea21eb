// Loads that are larger than what may be copied at once, and than the queue of a tier.
#include <gtest/gtest.h>

#include "cache/tiers/stores.h"
#include "tests/cache/gate.h"
#include "tests/cache/tiered_rig.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/cache/watched_store.h"

namespace invar::cache {
namespace {

class TierLoads : public testing::TestWithParam<bool> {
 protected:
  const StateShape& shape() const { return GetParam() ? kHybrid : kDense; }
  std::unique_ptr<Rig> Open(const int64_t copy_bytes_max, const int64_t queue_max = 256) {
    std::vector<std::unique_ptr<Tier>> tiers;
    auto disk = MakeDiskStore({.path = folder_.path(), .budget_bytes = 1 << 26, .store_id = "model"}, *files_).value();
    auto watched = std::make_unique<WatchedStore>(std::move(disk), [this] { gate_.Pass(); });
    tiers.push_back(MakeThreadedTier(std::move(watched), clock_, {.threads = 2, .limits = {.queue_max = queue_max}}));
    CacheOptions options{
        .shape = shape(), .budget_bytes = int64_t{1} << 20, .slots_without_bytes = 4, .identity = "model"};
    options.tuning.tier_copy_bytes_max = copy_bytes_max;
    return std::make_unique<Rig>(options, std::move(tiers));
  }

  RealClock clock_;
  TempFolder folder_;
  const std::unique_ptr<FileLayer> files_ = MakeSystemFiles();
  Gate gate_;  // Puts pass it.
};

constexpr int64_t kAll = int64_t{1} << 20;
// Three pages, a state and the page of its tail.
constexpr int64_t kWindow = 4 * 512 + 256;

TEST_P(TierLoads, LargerThanTheCopiesComeInWindowsThatEndWhereOneCanResume) {
  {
    const auto rig = Open(kAll);
    for (const int32_t turn : {150, 300, 450, 600}) rig->Whole(Ids(0, turn));
    rig->Persist();
  }
  const auto rig = Open(kWindow);
  const PrefixMatch match = rig->Whole(Join(Ids(0, 600), Ids(9000, 30)));
  EXPECT_EQ(match.state_tokens, GetParam() ? 600 : 576);
  EXPECT_EQ(rig->tier(), "disk");
  EXPECT_GE(rig->cache().Report().tier_loads.begun, 3);
  EXPECT_EQ(rig->cache().Report().tier_loads.failed, 0);
}

TEST_P(TierLoads, WhoseShortestWindowIsLargerThanTheCopiesGoAlone) {
  {
    const auto rig = Open(kAll);
    for (const int32_t turn : {300, 600}) rig->Whole(Ids(0, turn));
    rig->Persist();
  }
  const auto rig = Open(/*copy_bytes_max=*/100);
  EXPECT_EQ(rig->Whole(Join(Ids(0, 600), Ids(9000, 30))).state_tokens, GetParam() ? 600 : 576);
  EXPECT_EQ(rig->cache().Report().tier_loads.refused, 0);
}

TEST_P(TierLoads, WithoutRoomBesideOthersAreRefusedAndCounted) {
  const std::vector<Tokens> prompts = {Ids(0, 600), Ids(5000, 600)};
  {
    const auto rig = Open(kAll);
    for (const Tokens& prompt : prompts) rig->Whole(prompt);
    rig->Persist();
  }
  const auto rig = Open(/*copy_bytes_max=*/500);
  const auto begin = [&](const Tokens& prompt) {
    const Tokens tokens = Join(prompt, Ids(9000, 30));
    return rig->cache().Prefetch({.scope = {}, .tokens = tokens, .prompt_tokens = 630, .resume_limit = 629}, 0,
                                 clock_.Now());
  };
  EXPECT_TRUE(begin(prompts[0]).has_value());
  EXPECT_FALSE(begin(prompts[1]).has_value());
  EXPECT_EQ(rig->cache().Report().tier_loads.refused, 1);
}

// One page has several points: 158 has no room in the window, 128, which is met after it, has.
TEST_P(TierLoads, GoOnToAPointThatDidNotFitWhereAnotherOfItsPageDid) {
  {
    const auto rig = Open(kAll);
    for (const int32_t turn : {100, 158, 128}) {
      rig->Whole(Ids(0, turn));
      rig->Persist();
    }
  }
  const auto rig = Open(/*copy_bytes_max=*/2 * 512 + 256);
  EXPECT_EQ(rig->Whole(Join(Ids(0, 158), Ids(9000, 30))).state_tokens, GetParam() ? 158 : 128);
}

TEST_P(TierLoads, OfMoreRecordsThanTheQueueHoldsComeWhole) {
  {
    const auto rig = Open(kAll);
    rig->Whole(Ids(0, 1000));
    rig->Persist();
  }
  const auto rig = Open(kAll, /*queue_max=*/2);
  EXPECT_EQ(rig->Whole(Join(Ids(0, 1000), Ids(9000, 30))).state_tokens, GetParam() ? 1000 : 960);
}

TEST_P(TierLoads, WritesLargerThanTheCopiesAllGoOutInTheEnd) {
  {
    const auto rig = Open(/*copy_bytes_max=*/700, /*queue_max=*/2);
    rig->Whole(Ids(0, 600));
    rig->Persist();
  }
  const auto rig = Open(kAll);
  EXPECT_EQ(rig->Whole(Join(Ids(0, 600), Ids(9000, 30))).state_tokens, GetParam() ? 600 : 576);
}

// A disk takes its time. Whoever asked meanwhile once made the record be forgotten that was on its way.
TEST_P(TierLoads, OfWhatIsBeingWrittenFindNothingAndFindItOnceItIsThere) {
  const auto rig = Open(kAll);
  gate_.Shut();
  rig->Whole(Ids(0, 300));
  (void)rig->cache().Persist(clock_, clock_.Now());  // Gives up at once.
  gate_.AwaitOneStanding();
  rig->cache().Flush({.part = CachedPart::kKv}, clock_.Now());  // Out of memory alone.
  const Tokens next = Join(Ids(0, 300), Ids(9000, 30));
  EXPECT_EQ(rig->Whole(next).state_tokens, 0);
  EXPECT_EQ(rig->cache().Report().tier_loads.begun, 0);
  gate_.Open();
  rig->Persist();
  rig->cache().Flush({.part = CachedPart::kKv}, clock_.Now());
  EXPECT_GE(rig->Whole(next).state_tokens, GetParam() ? 300 : 256);
  EXPECT_EQ(rig->tier(), "disk");
}

INSTANTIATE_TEST_SUITE_P(Shapes, TierLoads, testing::Bool(),
                         [](const auto& info) { return info.param ? "Hybrid" : "Dense"; });

}  // namespace
}  // namespace invar::cache
