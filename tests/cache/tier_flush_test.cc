// What is flushed is never served again: by no tier, after no restart, however much there is of it.
#include <gtest/gtest.h>

#include "cache/tiers/stores.h"
#include "tests/cache/gate.h"
#include "tests/cache/tiered_rig.h"
#include "tests/cache/tiers/redis_server.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/cache/watched_store.h"

namespace invar::cache {
namespace {

class TierFlush : public testing::TestWithParam<bool> {
 protected:
  static constexpr int64_t kQueueMax = 8;

  const StateShape& shape() const { return GetParam() ? kHybrid : kDense; }
  std::unique_ptr<Rig> Open() {
    auto disk = MakeDiskStore({.path = folder_.path(), .budget_bytes = 1 << 26, .store_id = "model"}, *files_).value();
    auto watched = std::make_unique<WatchedStore>(std::move(disk), [this] { gate_.Pass(); });
    std::vector<std::unique_ptr<Tier>> tiers;
    tiers.push_back(MakeThreadedTier(std::move(watched), clock_, {.threads = 2, .limits = {.queue_max = kQueueMax}}));
    return std::make_unique<Rig>(shape(), int64_t{1} << 21, std::move(tiers));
  }

  RealClock clock_;
  TempFolder folder_;
  const std::unique_ptr<FileLayer> files_ = MakeSystemFiles();
  Gate gate_;
};

constexpr int32_t kPrompts = 12;
constexpr int32_t kTokens = 400;

TEST_P(TierFlush, OfMoreRecordsThanTheQueueHoldsAndAPutUnderWayNothingComesBackAfterARestart) {
  {
    const auto rig = Open();
    for (int32_t i = 0; i < kPrompts; ++i) rig->Whole(Ids(1000 * i, kTokens));
    rig->Persist();
    gate_.Shut();
    rig->Whole(Ids(1'000'000, kTokens));
    // Writes as much as the queue takes, and gives up at once.
    (void)rig->cache().Persist(clock_, clock_.Now());
    gate_.AwaitOneStanding();
    rig->cache().Flush({}, clock_.Now());
    gate_.Open();
    const PersistReport report = rig->cache().Persist(clock_, clock_.Now() + int64_t{20} * 1'000'000'000);
    EXPECT_FALSE(report.was_cut_short);
    EXPECT_EQ(rig->cache().Report().tiers[0].stats.records, 0);
  }
  const auto rig = Open();
  EXPECT_EQ(rig->cache().Report().tiers[0].stats.records, 0);
  for (int32_t i = 0; i < kPrompts; ++i) EXPECT_EQ(rig->Whole(Ids(1000 * i, kTokens)).kv_tokens, 0) << i;
  EXPECT_EQ(rig->Whole(Ids(1'000'000, kTokens)).kv_tokens, 0);
}

TEST_P(TierFlush, OneTenantGoesAndWhatComesAfterItStays) {
  const Scope mine{.tenant = "a", .salt = "s", .provenance = {}};
  const Scope other{.tenant = "b", .salt = "s", .provenance = {}};
  {
    const auto rig = Open();
    rig->Whole(Ids(0, kTokens), mine);
    rig->Whole(Ids(0, kTokens), other);
    rig->Persist();
    rig->cache().Flush({.tenant = "a"}, clock_.Now());
    rig->Whole(Ids(5000, kTokens), mine);
    rig->Persist();
  }
  const auto rig = Open();
  EXPECT_EQ(rig->Whole(Ids(0, kTokens), mine).kv_tokens, 0);
  EXPECT_GT(rig->Whole(Ids(0, kTokens), other).kv_tokens, 0);
  EXPECT_GT(rig->Whole(Ids(5000, kTokens), mine).kv_tokens, 0);
}

TEST_P(TierFlush, OnAServerThatInstancesShareNoneOfThemFindsItAnyMore) {
  const RedisServer server;
  const auto open = [&] {
    std::vector<std::unique_ptr<Tier>> tiers;
    tiers.push_back(Threaded(
        MakeRespStore({.address = server.address(), .secret = std::string(32, 's'), .store_id = "model"}, clock_)
            .value(),
        clock_));
    return std::make_unique<Rig>(shape(), int64_t{1} << 20, std::move(tiers));
  };
  const Scope a{.tenant = "a", .salt = {}, .provenance = {}};
  const Scope b{.tenant = "b", .salt = {}, .provenance = {}};
  const auto one = open();
  one->Whole(Ids(0, 300), a);
  one->Whole(Ids(0, 300), b);
  one->Persist();
  const auto other = open();
  EXPECT_GT(other->Whole(Ids(0, 300), a).kv_tokens, 0) << "before";
  other->cache().Flush({.part = CachedPart::kKv}, clock_.Now());  // Out of its memory alone.
  one->cache().Flush({.tenant = "a"}, clock_.Now());
  one->Persist();
  EXPECT_EQ(other->Whole(Ids(0, 300), a).kv_tokens, 0);
  EXPECT_GT(other->Whole(Ids(0, 300), b).kv_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, TierFlush, testing::Bool(),
                         [](const auto& info) { return info.param ? "Hybrid" : "Dense"; });

}  // namespace
}  // namespace invar::cache
