// What the cache believes that tiers hold: it hears of what they give up, does not believe in shared ones for ever, and
// shares with other instances what is theirs.
#include <gtest/gtest.h>

#include <atomic>

#include "cache/tiers/stores.h"
#include "tests/cache/tiered_rig.h"
#include "tests/cache/tiers/redis_server.h"

namespace invar::cache {
namespace {

class HandClock final : public Clock {
 public:
  TimeNs Now() const override { return now_; }
  void Advance(const TimeNs by) { now_ += by; }

 private:
  std::atomic<TimeNs> now_ = 1;
};

constexpr TimeNs kHour = TimeNs{3600} * 1'000'000'000;

class TierIndex : public testing::TestWithParam<bool> {
 protected:
  const StateShape& shape() const { return GetParam() ? kHybrid : kDense; }
  int32_t Restored(const int32_t tokens) const { return GetParam() ? tokens : tokens / 64 * 64; }
  // As if memory had needed the room.
  void Forget(Rig& rig) { rig.cache().Flush({.part = CachedPart::kKv}, clock_.Now()); }
  std::unique_ptr<Rig> Shared(const RedisServer& server, const Clock& clock, const std::string& identity = "model") {
    std::vector<std::unique_ptr<Tier>> tiers;
    tiers.push_back(Threaded(
        MakeRespStore({.address = server.address(), .secret = std::string(32, 's'), .store_id = "model"}, clock)
            .value(),
        clock));
    return std::make_unique<Rig>(
        CacheOptions{
            .shape = shape(), .budget_bytes = int64_t{1} << 20, .slots_without_bytes = 4, .identity = identity},
        std::move(tiers), &clock);
  }

  RealClock clock_;
};

TEST_P(TierIndex, WhatATierHasEvictedIsWrittenAgain) {
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(Threaded(MakeRamStore(10 * 600), clock_));  // One prompt of 5 pages with its states.
  Rig rig(shape(), 1 << 20, std::move(tiers));
  const Tokens a = Ids(0, 320);
  const Tokens b = Ids(5000, 320);
  rig.Whole(a);
  rig.Persist();
  rig.Whole(b);
  rig.Persist();  // Pushes `a` out of the tier.
  rig.Whole(Join(a, Ids(7, 10)));
  rig.Persist();
  Forget(rig);
  EXPECT_EQ(rig.Whole(Join(a, Ids(8, 10))).state_tokens, 320);
  EXPECT_EQ(rig.tier(), "ram");
}

// A store in which a record goes right before it is marked as used: the one of the `countdown`-th use.
class LosesAtUse final : public TierStore {
 public:
  explicit LosesAtUse(std::shared_ptr<std::atomic<int>> countdown) : countdown_(std::move(countdown)) {}

  std::string_view name() const override { return ram_->name(); }
  std::vector<TierRecord> Inventory() override { return ram_->Inventory(); }
  StatusOr<std::vector<TierRecord>> Find(const std::span<const TierKey> keys, TierTransfer& call) override {
    return ram_->Find(keys, call);
  }
  Status Put(const TierRecord& record, TierTransfer& payload) override { return ram_->Put(record, payload); }
  StatusOr<std::string> Get(const TierKey& key, TierTransfer& sink) override { return ram_->Get(key, sink); }
  Status Drop(const TierSpaces& of, TierTransfer& call) override { return ram_->Drop(of, call); }
  bool Use(const TierKey& key, const TimeNs used_at) override {
    if (--*countdown_ == 0) {
      TierTransfer of_another_size(TierSink{}, kNever);
      EXPECT_EQ(ram_->Get(key, of_another_size).status().code(), StatusCode::kDataLoss);
    }
    return ram_->Use(key, used_at);
  }
  std::vector<TierKey> TakeGone() override { return ram_->TakeGone(); }
  TierContents Contents() const override { return ram_->Contents(); }

 private:
  const std::shared_ptr<std::atomic<int>> countdown_;
  const std::unique_ptr<TierStore> ram_ = MakeRamStore(int64_t{1} << 20);
};

TEST_P(TierIndex, WhatGoesRightBeforeItIsMarkedAsUsedIsWrittenAgain) {
  const Tokens a = Ids(0, 320);
  int lost = 0;
  for (;; ++lost) {
    SCOPED_TRACE(lost);
    const auto countdown = std::make_shared<std::atomic<int>>(0);
    std::vector<std::unique_ptr<Tier>> tiers;
    tiers.push_back(Threaded(std::make_unique<LosesAtUse>(countdown), clock_));
    Rig rig(shape(), 1 << 20, std::move(tiers));
    rig.Whole(a);
    rig.Persist();
    *countdown = lost + 1;
    rig.Persist();
    if (*countdown > 0) break;  // It is not used so often.
    Forget(rig);
    ASSERT_EQ(rig.Whole(Join(a, Ids(8, 10))).state_tokens, 320);
    ASSERT_EQ(rig.tier(), "ram");
  }
  EXPECT_GE(lost, 5) << "pages, and states";
}

TEST_P(TierIndex, WhatHasExpiredOnASharedServerIsWrittenAgain) {
  const RedisServer server;
  HandClock clock;
  const auto rig = Shared(server, clock);
  const Tokens a = Ids(0, 320);
  rig->Whole(a);
  rig->Persist();
  clock.Advance(25 * kHour);
  server.Command({"FLUSHALL"});  // What the server does at the end of their time.
  rig->Persist();
  Forget(*rig);
  EXPECT_EQ(rig->Whole(Join(a, Ids(8, 10))).state_tokens, 320);
  EXPECT_EQ(rig->tier(), "remote");
}

// Two that end their requests in the same page, and know nothing of each other.
TEST_P(TierIndex, InstancesThatShareAServerAddToEachOthersDirectories) {
  const RedisServer server;
  const Tokens shared = Ids(0, 128);
  const Tokens one = Join(shared, Ids(1000, 10));
  const Tokens other = Join(shared, Ids(2000, 20));
  const auto first = Shared(server, clock_);
  const auto second = Shared(server, clock_);
  first->Whole(one);
  second->Whole(other);
  first->Persist();
  second->Persist();
  const auto third = Shared(server, clock_);
  EXPECT_EQ(third->Whole(Join(one, Ids(7, 30))).state_tokens, Restored(138));
  Forget(*third);
  EXPECT_EQ(third->Whole(Join(other, Ids(7, 30))).state_tokens, Restored(148));
}

TEST_P(TierIndex, AnotherModelFindsNothing) {
  const RedisServer server;
  const auto one = Shared(server, clock_);
  one->Whole(Ids(0, 320));
  one->Persist();
  const auto other = Shared(server, clock_, "another model");
  EXPECT_EQ(other->Whole(Ids(0, 320)).kv_tokens, 0);
  const auto same = Shared(server, clock_);
  EXPECT_GT(same->Whole(Ids(0, 320)).kv_tokens, 0);
}

// A store that gives every record back with a header of its own.
class OtherHeaders final : public TierStore {
 public:
  std::string_view name() const override { return ram_->name(); }
  std::vector<TierRecord> Inventory() override { return ram_->Inventory(); }
  StatusOr<std::vector<TierRecord>> Find(const std::span<const TierKey> keys, TierTransfer& call) override {
    return ram_->Find(keys, call);
  }
  Status Put(const TierRecord& record, TierTransfer& payload) override { return ram_->Put(record, payload); }
  StatusOr<std::string> Get(const TierKey& key, TierTransfer& sink) override {
    StatusOr<std::string> header = ram_->Get(key, sink);
    return header.ok() ? StatusOr<std::string>(*header + "!") : header;
  }
  Status Drop(const TierSpaces& of, TierTransfer& call) override { return ram_->Drop(of, call); }
  TierContents Contents() const override { return ram_->Contents(); }

 private:
  const std::unique_ptr<TierStore> ram_ = MakeRamStore(int64_t{1} << 20);
};

TEST_P(TierIndex, ARecordThatSaysItIsAnotherIsNotBelieved) {
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(Threaded(std::make_unique<OtherHeaders>(), clock_));
  Rig rig(shape(), 1 << 20, std::move(tiers));
  rig.Whole(Ids(0, 320));
  rig.Persist();
  Forget(rig);
  EXPECT_EQ(rig.Whole(Ids(0, 320)).kv_tokens, 0);
  EXPECT_EQ(rig.cache().Report().tier_loads.failed, 1);
}

INSTANTIATE_TEST_SUITE_P(Shapes, TierIndex, testing::Bool(),
                         [](const auto& info) { return info.param ? "Hybrid" : "Dense"; });

}  // namespace
}  // namespace invar::cache
