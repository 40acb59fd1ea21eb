// What the tiers take when the daemon ends: what is worth most first, as long as there is time.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "base/log.h"
#include "base/mutex.h"
#include "cache/tiers/stores.h"
#include "tests/cache/tiered_rig.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/cache/watched_store.h"

namespace invar::cache {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;

// Moves as records are written.
class WorkClock final : public Clock {
 public:
  TimeNs Now() const override { return now_; }
  void Advance(const TimeNs by) { now_ += by; }

 private:
  std::atomic<TimeNs> now_ = kSecond;
};

// Fails the puts that `fails` says; as a server that is away, or as a disk that is full.
class FailingStore final : public WatchedStore {
 public:
  FailingStore(std::unique_ptr<TierStore> store, std::function<bool(const TierKey&)> fails,
               const bool is_server = false)
      : WatchedStore(std::move(store), [] {}), fails_(std::move(fails)), is_server_(is_server) {}

  bool is_server() const override { return is_server_; }
  Status Put(const TierRecord& record, TierTransfer& payload) override {
    if (fails_(record.key)) return Unavailable("made to fail");
    return WatchedStore::Put(record, payload);
  }

 private:
  const std::function<bool(const TierKey&)> fails_;
  const bool is_server_;
};
bool Always(const TierKey&) { return true; }

class Persist : public testing::TestWithParam<bool> {
 protected:
  const StateShape& shape() const { return GetParam() ? kHybrid : kDense; }
  std::unique_ptr<TierStore> Disk(const int64_t budget_bytes) {
    return MakeDiskStore({.path = folder_.path(), .budget_bytes = budget_bytes, .store_id = "model"}, *files_).value();
  }
  std::unique_ptr<Rig> RigOver(std::unique_ptr<TierStore> store, const Clock& clock) {
    std::vector<std::unique_ptr<Tier>> tiers;
    tiers.push_back(MakeThreadedTier(std::move(store), clock, {.threads = 1}));
    return std::make_unique<Rig>(shape(), int64_t{1} << 20, std::move(tiers));
  }
  // What Persist says of kPrompts prompts.
  PersistReport OfPrompts(Rig& rig) {
    for (int32_t i = 0; i < kPrompts; ++i) rig.Whole(Prompt(i));
    return rig.cache().Persist(clock_, clock_.Now() + 60 * kSecond);
  }
  // Prompts of 4 whole pages, in the order of their use.
  static Tokens Prompt(const int32_t i) { return Ids(1000 * i, 256); }
  static constexpr int32_t kPrompts = 8;

  RealClock clock_;
  TempFolder folder_;
  const std::unique_ptr<FileLayer> files_ = MakeSystemFiles();
};

// 7 records of a whole block each for head and payload: one prompt with its state (or two), not two prompts.
TEST_P(Persist, WhereATierHasNoRoomForAllTheMostRecentlyUsedSurvive) {
  const int64_t budget = 7 * int64_t{8192};
  {
    const auto rig = RigOver(Disk(budget), clock_);
    for (int32_t i = 0; i < kPrompts; ++i) rig->Whole(Prompt(i));
    rig->Persist();
  }
  const auto rig = RigOver(Disk(budget), clock_);
  EXPECT_EQ(rig->Whole(Join(Prompt(kPrompts - 1), Ids(7, 20))).state_tokens, 256);
  for (int32_t i = 0; i + 2 < kPrompts; ++i) EXPECT_EQ(rig->Whole(Prompt(i)).state_tokens, 0) << i;
}

// And it stays the last that a tier gives up after the restart.
TEST_P(Persist, TheOrderOfUseOutlivesARestart) {
  {
    const auto rig = RigOver(Disk(int64_t{1} << 24), clock_);
    for (int32_t i = 0; i < kPrompts; ++i) rig->Whole(Prompt(i));
    rig->Persist();
  }
  const auto rig = RigOver(Disk(7 * int64_t{8192}), clock_);
  EXPECT_EQ(rig->Whole(Join(Prompt(kPrompts - 1), Ids(7, 20))).state_tokens, 256);
}

TEST_P(Persist, WhereTimeIsShortTheMostRecentlyUsedSurvive) {
  WorkClock clock;
  {
    const auto store = [&] {
      return std::make_unique<WatchedStore>(Disk(int64_t{1} << 24), [&] { clock.Advance(kSecond); });
    };
    const auto rig = RigOver(store(), clock);
    for (int32_t i = 0; i < kPrompts; ++i) rig->Whole(Prompt(i));
    const PersistReport report = rig->cache().Persist(clock, clock.Now() + 8 * kSecond);
    EXPECT_TRUE(report.was_cut_short);
  }
  const auto rig = RigOver(Disk(int64_t{1} << 24), clock_);
  EXPECT_EQ(rig->Whole(Join(Prompt(kPrompts - 1), Ids(7, 20))).state_tokens, 256);
  EXPECT_EQ(rig->Whole(Prompt(0)).state_tokens, 0);
}

TEST_P(Persist, WithoutTimeNothingButTheFirstIsLookedAt) {
  const auto rig = RigOver(Disk(int64_t{1} << 24), clock_);
  for (int32_t i = 0; i < kPrompts; ++i) rig->Whole(Prompt(i));
  const PersistReport report = rig->cache().Persist(clock_, clock_.Now());
  EXPECT_TRUE(report.was_cut_short);
  EXPECT_LE(report.stored, 1);
  EXPECT_GE(report.prefixes, kPrompts);
}

TEST_P(Persist, EndsWhenToldToHurry) {
  Mutex mu;
  CondVar changed;
  bool stands = false;
  bool may_go = false;
  const auto rig = RigOver(std::make_unique<WatchedStore>(Disk(int64_t{1} << 24),
                                                          [&] {
                                                            const MutexLock lock(mu);
                                                            stands = true;
                                                            changed.NotifyAll();
                                                            while (!may_go) changed.Wait(mu);
                                                          }),
                           clock_);
  rig->Whole(Prompt(0));
  PersistReport report;
  std::jthread persister([&](const std::stop_token& hurry) {
    report = rig->cache().Persist(clock_, clock_.Now() + 600 * kSecond, hurry);
  });
  {
    const MutexLock lock(mu);
    while (!stands) changed.Wait(mu);
  }
  persister.request_stop();
  persister.join();
  EXPECT_TRUE(report.was_cut_short);
  const MutexLock lock(mu);
  may_go = true;
  changed.NotifyAll();
}

TEST_P(Persist, SaysThatAllIsThere) {
  const auto rig = RigOver(Disk(int64_t{1} << 24), clock_);
  const PersistReport report = OfPrompts(*rig);
  EXPECT_FALSE(report.was_cut_short);
  EXPECT_GE(report.prefixes, kPrompts);
  EXPECT_EQ(report.stored, report.prefixes);
}

TEST_P(Persist, CountsNothingThatATierFailedToWrite) {
  const auto rig = RigOver(std::make_unique<FailingStore>(Disk(int64_t{1} << 24), Always), clock_);
  const PersistReport report = OfPrompts(*rig);
  EXPECT_FALSE(report.was_cut_short);
  EXPECT_GE(report.prefixes, kPrompts);
  EXPECT_EQ(report.stored, 0);
}

// After three failures nothing is written any more; before the second call nothing is on its way either.
TEST_P(Persist, AsksATierThatIsLeftAloneUntilTimeIsUpAndCountsNothing) {
  Logger("cache")->set_level(spdlog::level::off);
  const auto rig = RigOver(std::make_unique<FailingStore>(Disk(int64_t{1} << 24), Always, /*is_server=*/true), clock_);
  for (int32_t i = 0; i < kPrompts; ++i) rig->Whole(Prompt(i));
  for (int i = 0; i < 2; ++i) {
    const PersistReport report = rig->cache().Persist(clock_, clock_.Now() + kSecond / 10);
    EXPECT_TRUE(report.was_cut_short);
    EXPECT_GE(report.prefixes, kPrompts);
    EXPECT_EQ(report.stored, 0);
  }
}

// A server that comes back, before the process ends or while it does.
TEST_P(Persist, GivesATierThatAnswersAgainAllThatItWasNotGivenWhileItWasLeftAlone) {
  Logger("cache")->set_level(spdlog::level::off);
  for (const bool is_left_alone_before : {true, false}) {
    const TempFolder folder;
    int failures = 0;
    std::vector<std::unique_ptr<Tier>> tiers;
    tiers.push_back(MakeThreadedTier(
        std::make_unique<FailingStore>(
            MakeDiskStore({.path = folder.path(), .budget_bytes = 1 << 24, .store_id = "model"}, *files_).value(),
            [&](const TierKey&) { return ++failures <= 4; }, /*is_server=*/true),
        clock_, {.threads = 1, .breaker = {.failures_max = 3, .pause_min = kSecond / 100}}));
    Rig rig(shape(), int64_t{1} << 20, std::move(tiers));
    for (int32_t i = 0; i < kPrompts; ++i) rig.Whole(Prompt(i));
    if (is_left_alone_before) (void)rig.cache().Persist(clock_, clock_.Now());
    const PersistReport report = rig.cache().Persist(clock_, clock_.Now() + 60 * kSecond);
    EXPECT_FALSE(report.was_cut_short);
    EXPECT_GE(report.prefixes, kPrompts);
    EXPECT_EQ(report.stored, report.prefixes) << is_left_alone_before;
  }
}

// Nobody waits for an answer any more: a record may take what time there is, not only what one has while others wait.
TEST_P(Persist, ARecordMayTakeAllTheTimeThereIs) {
  WorkClock clock;
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(MakeThreadedTier(
      std::make_unique<WatchedStore>(Disk(int64_t{1} << 24), [&] { clock.Advance(kSecond); }), clock, {.threads = 1}));
  CacheOptions options{.shape = shape(), .budget_bytes = int64_t{1} << 20, .slots_without_bytes = 4};
  options.tuning.deadlines.write = kSecond / 1000;
  Rig rig(options, std::move(tiers), &clock);
  for (int32_t i = 0; i < kPrompts; ++i) rig.Whole(Prompt(i));
  const PersistReport report = rig.cache().Persist(clock, clock.Now() + 600 * kSecond);
  EXPECT_FALSE(report.was_cut_short);
  EXPECT_GE(report.prefixes, kPrompts);
  EXPECT_EQ(report.stored, report.prefixes);
}

// The first half of all records is that of the prompts used last: what is counted is what the next process finds.
TEST_P(Persist, OfADiskThatFailsHalfOfTheWayCountsWhatTheNextProcessFinds) {
  int left = kPrompts / 2 * (GetParam() ? 4 + 2 : 4);
  {
    const auto rig = RigOver(
        std::make_unique<FailingStore>(Disk(int64_t{1} << 24), [&](const TierKey&) { return --left < 0; }), clock_);
    const PersistReport report = OfPrompts(*rig);
    EXPECT_FALSE(report.was_cut_short);
    EXPECT_EQ(2 * report.stored, report.prefixes);
  }
  const auto rig = RigOver(Disk(int64_t{1} << 24), clock_);
  for (int32_t i = 0; i < kPrompts; ++i) {
    EXPECT_EQ(rig->Whole(Join(Prompt(i), Ids(7, 20))).state_tokens, i < kPrompts / 2 ? 0 : 256) << i;
  }
}

// A page is put with the first prompt that begins with it, and may be taken for there by the others until that fails.
TEST_P(Persist, CountsNoPrefixOfWhichAPageIsMissingThatAnotherOneBrought) {
  std::optional<TierKey> shared;
  const auto rig = RigOver(std::make_unique<FailingStore>(Disk(int64_t{1} << 24),
                                                          [&](const TierKey& key) {
                                                            if (!shared.has_value()) shared = key;
                                                            return key == *shared;
                                                          }),
                           clock_);
  for (int32_t i = 0; i < kPrompts; ++i) rig->Whole(Join(Ids(0, 64), Prompt(i + 1)));
  const PersistReport report = rig->cache().Persist(clock_, clock_.Now() + 60 * kSecond);
  EXPECT_GE(report.prefixes, kPrompts);
  EXPECT_EQ(report.stored, 0);
}

TEST_P(Persist, CountsNothingThatEndsWithTheProcess) {
  const auto over = [&](const bool has_disk) {
    std::vector<std::unique_ptr<Tier>> tiers;
    tiers.push_back(Threaded(MakeRamStore(int64_t{1} << 24), clock_));
    if (has_disk) tiers.push_back(Threaded(std::make_unique<FailingStore>(Disk(int64_t{1} << 24), Always), clock_));
    Rig rig(shape(), int64_t{1} << 20, std::move(tiers));
    return OfPrompts(rig);
  };
  EXPECT_EQ(over(/*has_disk=*/false).prefixes, 0);
  EXPECT_GE(over(/*has_disk=*/true).prefixes, kPrompts);
  EXPECT_EQ(over(/*has_disk=*/true).stored, 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Persist, testing::Bool(),
                         [](const auto& info) { return info.param ? "Hybrid" : "Dense"; });

}  // namespace
}  // namespace invar::cache
