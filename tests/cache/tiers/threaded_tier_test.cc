// ThreadedTier over a store that blocks when told to: full queues, stuck stores, deadlines in the middle of the I/O.
#include "cache/tiers/threaded_tier.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/log.h"
#include "cache/tiers/stores.h"
#include "tests/cache/tiers/tier_kinds.h"

namespace invar::cache {
namespace {

constexpr TimeNs kMs = 1'000'000;

// A door that holds every call at its entry, or in the middle of its copying, while it is shut.
class BlockingStore final : public TierStore {
 public:
  struct Door {
    Mutex mu;
    CondVar cv;
    bool is_open GUARDED_BY(mu) = true;
    int waiting GUARDED_BY(mu) = 0;

    void Set(const bool open) {
      const MutexLock lock(mu);
      is_open = open;
      cv.NotifyAll();
    }
    void Pass() {
      const MutexLock lock(mu);
      ++waiting;
      cv.NotifyAll();
      while (!is_open) cv.Wait(mu);
      --waiting;
    }
    void AwaitWaiting(const int count) {
      const MutexLock lock(mu);
      while (waiting < count) cv.Wait(mu);
    }
  };

  explicit BlockingStore(std::shared_ptr<Door> door) : door_(std::move(door)) {}

  std::string_view name() const override { return "blocking"; }
  std::vector<TierRecord> Inventory() override { return {}; }
  StatusOr<std::vector<TierRecord>> Find(const std::span<const TierKey> keys, TierTransfer& call) override {
    door_->Pass();
    return ram_->Find(keys, call);
  }
  Status Put(const TierRecord& record, TierTransfer& payload) override {
    door_->Pass();
    return ram_->Put(record, payload);
  }
  StatusOr<std::string> Get(const TierKey& key, TierTransfer& sink) override {
    door_->Pass();
    return ram_->Get(key, sink);
  }
  Status Drop(const TierSpaces& of, TierTransfer& call) override { return ram_->Drop(of, call); }
  TierContents Contents() const override { return ram_->Contents(); }

 private:
  const std::shared_ptr<Door> door_;
  const std::unique_ptr<TierStore> ram_ = MakeRamStore(int64_t{64} << 20);
};

class ThreadedTierTest : public testing::Test, public TierPlace {
 protected:
  std::unique_ptr<Tier> Open(int64_t) override { return Open(ThreadedTierOptions{}); }
  std::unique_ptr<Tier> Open(const ThreadedTierOptions& options) {
    return MakeThreadedTier(std::make_unique<BlockingStore>(door), clock, options);
  }
  TimeNs Now() const override { return clock.Now(); }
  TimeNs In(const int milliseconds) const { return clock.Now() + TimeNs{milliseconds} * 1'000'000; }

  RealClock clock;
  std::shared_ptr<BlockingStore::Door> door = std::make_shared<BlockingStore::Door>();
};

TEST_F(ThreadedTierTest, AFullQueueRefusesAtOnceAndCountsIt) {
  const auto tier = Open({.threads = 1, .limits = {.queue_max = 3}});
  door->Set(false);
  const std::vector<std::byte> payload = MadeBytes(1, 10);
  std::vector<Awaited<Status>> puts(4);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        tier->Put({.key = MadeKey(i), .header = "", .payload_bytes = 10}, {{payload}, nullptr}, kNever, puts[i].Done())
            .ok());
  }
  EXPECT_EQ(
      tier->Put({.key = MadeKey(3), .header = "", .payload_bytes = 10}, {{payload}, nullptr}, kNever, puts[3].Done())
          .code(),
      StatusCode::kResourceExhausted);
  // Reads have a queue of their own.
  std::vector<Awaited<StatusOr<std::vector<TierRecord>>>> finds(4);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(tier->Find({MadeKey(9)}, kNever, finds[i].Done()).ok());
  EXPECT_EQ(tier->Find({MadeKey(9)}, kNever, finds[3].Done()).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(tier->Stats().put_misses[static_cast<size_t>(TierMiss::kFull)], 1);
  EXPECT_EQ(tier->Stats().get_misses[static_cast<size_t>(TierMiss::kFull)], 1);
  EXPECT_EQ(tier->Stats().in_flight, 6);
  EXPECT_EQ(tier->Stats().in_flight_bytes, 30);
  door->Set(true);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(puts[i].Wait(*this, *tier).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(finds[i].Wait(*this, *tier).ok());
  EXPECT_FALSE(puts[3].IsDone()) << "a refused call has no end";
  EXPECT_EQ(tier->Stats().in_flight, 0);
}

TEST_F(ThreadedTierTest, BytesInFlightAreLimitedButOneLargeCallRuns) {
  const auto tier = Open({.threads = 1, .limits = {.queue_bytes_max = 100}});
  door->Set(false);
  const std::vector<std::byte> payload = MadeBytes(1, 1000);
  Awaited<Status> large;
  ASSERT_TRUE(
      tier->Put({.key = MadeKey(0), .header = "", .payload_bytes = 1000}, {{payload}, nullptr}, kNever, large.Done())
          .ok());
  EXPECT_EQ(tier->Put({.key = MadeKey(1), .header = "", .payload_bytes = 1000}, {{payload}, nullptr}, kNever,
                      [](const Status&) {})
                .code(),
            StatusCode::kResourceExhausted);
  door->Set(true);
  EXPECT_TRUE(large.Wait(*this, *tier).ok());
}

TEST_F(ThreadedTierTest, AStuckStoreCostsMissesByDeadlineAndReleasesTheMemory) {
  // Here nobody gives up asking: other tests see to that.
  const auto tier = Open({.threads = 2, .limits = {.queue_max = 64}, .breaker = {.failures_max = 1000}});
  door->Set(false);
  const std::vector<std::byte> payload = MadeBytes(1, 1000);
  auto handle = std::make_shared<int>(0);
  std::vector<Awaited<Status>> puts(10);
  std::vector<Awaited<StatusOr<std::string>>> gets(10);
  std::vector<std::byte> filled(1000);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(
        tier->Put({.key = MadeKey(i), .header = "", .payload_bytes = 1000}, {{payload}, handle}, In(20), puts[i].Done())
            .ok());
    ASSERT_TRUE(tier->Get(MadeKey(i), {{filled}, handle}, In(30), gets[i].Done()).ok());
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(puts[i].Wait(*this, *tier).code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(gets[i].Wait(*this, *tier).status().code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(handle.use_count(), 1) << "though two threads are still in the store";
  EXPECT_EQ(tier->Stats().in_flight, 0);
  EXPECT_EQ(tier->Stats().put_misses[static_cast<size_t>(TierMiss::kLate)], 10);
  EXPECT_EQ(tier->Stats().get_misses[static_cast<size_t>(TierMiss::kLate)], 10);
  filled.assign(1000, std::byte{0});
  door->Set(true);
  // The threads come back from the store, find their calls ended, and serve the next.
  EXPECT_TRUE(PutMade(*this, *tier, 99, 1000).ok());
  EXPECT_EQ(GetMade(*this, *tier, 99, 1000).ToString(), "OK");
  EXPECT_TRUE(filled == std::vector<std::byte>(1000)) << "a sink is not touched after its deadline";
}

// As a disk that hangs: after three calls nobody waits for it any more, until one of those that ask now and then has an
// answer.
TEST_F(ThreadedTierTest, AStoreThatStaysStuckIsLeftAloneAndAskedNowAndThen) {
  Logger("cache")->set_level(spdlog::level::off);
  const auto tier = Open({.threads = 1, .breaker = {.failures_max = 3, .pause_min = 30 * kMs, .pause_max = 60 * kMs}});
  ASSERT_TRUE(PutMade(*this, *tier, 1, 1000).ok());
  std::vector<std::byte> filled(1000);
  const auto get = [&] {
    Awaited<StatusOr<std::string>> got;
    const Status accepted = tier->Get(MadeKey(1), {{filled}, nullptr}, In(10), got.Done());
    return accepted.ok() ? got.Wait(*this, *tier).status().code() : accepted.code();
  };
  door->Set(false);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(get(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(tier->is_paused());
  EXPECT_EQ(tier->Stats().paused, 1);
  int refused = 0;
  int late = 0;
  const TimeNs until = In(400);
  while (clock.Now() < until) ++(get() == StatusCode::kUnavailable ? refused : late);
  EXPECT_GE(refused, 20) << "at once";
  EXPECT_GE(late, 1) << "probes";
  EXPECT_LE(late, 400 / 30 + 1);
  EXPECT_EQ(tier->Stats().get_misses[static_cast<size_t>(TierMiss::kUnavailable)], refused);
  EXPECT_EQ(tier->Stats().in_flight, 0) << "what is refused is not in flight";
  door->Set(true);
  const TimeNs give_up = In(10'000);
  while (get() != StatusCode::kOk && clock.Now() < give_up) {
  }
  EXPECT_FALSE(tier->is_paused());
  EXPECT_EQ(tier->Stats().pauses, 1);
}

TEST_F(ThreadedTierTest, WhatWasQueuedBeforeThePauseDoesNotAskTheStoreEither) {
  Logger("cache")->set_level(spdlog::level::off);
  const auto tier =
      Open({.threads = 1, .breaker = {.failures_max = 1, .pause_min = 3'600'000 * kMs, .pause_max = 3'600'000 * kMs}});
  const std::vector<std::byte> payload = MadeBytes(1, 10);
  door->Set(false);
  Awaited<StatusOr<std::vector<TierRecord>>> stuck;
  ASSERT_TRUE(tier->Find({MadeKey(1)}, In(20), stuck.Done()).ok());
  door->AwaitWaiting(1);
  Awaited<Status> queued;
  ASSERT_TRUE(
      tier->Put({.key = MadeKey(1), .header = "", .payload_bytes = 10}, {{payload}, nullptr}, kNever, queued.Done())
          .ok());
  EXPECT_EQ(stuck.Wait(*this, *tier).status().code(), StatusCode::kDeadlineExceeded);
  door->Set(true);
  EXPECT_EQ(queued.Wait(*this, *tier).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(tier->is_paused()) << "that was no answer";
}

TEST_F(ThreadedTierTest, ReadsGoBeforeWrites) {
  const auto tier = Open({.threads = 1});
  door->Set(false);
  const std::vector<std::byte> payload = MadeBytes(1, 10);
  std::vector<std::byte> filled(10);
  Mutex mu;
  std::vector<std::string> order;
  const auto note = [&](const char* what) {
    const MutexLock lock(mu);
    order.emplace_back(what);
  };
  Awaited<Status> last;
  ASSERT_TRUE(tier->Put({.key = MadeKey(0), .header = "", .payload_bytes = 10}, {{payload}, nullptr}, kNever,
                        [&](Status) { note("put 0"); })
                  .ok());
  door->AwaitWaiting(1);
  ASSERT_TRUE(tier->Put({.key = MadeKey(1), .header = "", .payload_bytes = 10}, {{payload}, nullptr}, kNever,
                        [&, done = last.Done()](Status status) {
                          note("put 1");
                          done(std::move(status));
                        })
                  .ok());
  ASSERT_TRUE(
      tier->Get(MadeKey(0), {{filled}, nullptr}, kNever, [&](const StatusOr<std::string>&) { note("get"); }).ok());
  door->Set(true);
  EXPECT_TRUE(last.Wait(*this, *tier).ok());
  const MutexLock lock(mu);
  EXPECT_EQ(order, (std::vector<std::string>{"put 0", "get", "put 1"}));
}

TEST_F(ThreadedTierTest, DoneMayCallTheTierAgain) {
  const auto tier = Open(ThreadedTierOptions{});
  ASSERT_TRUE(PutMade(*this, *tier, 1, 10).ok());
  std::vector<std::byte> filled(10);
  Awaited<Status> dropped;
  ASSERT_TRUE(tier->Get(MadeKey(1), {{filled}, nullptr}, kNever,
                        [&](StatusOr<std::string> header) {
                          EXPECT_TRUE(header.ok());
                          EXPECT_TRUE(tier->Drop(OnlyOf(1), kNever, dropped.Done()).ok());
                        })
                  .ok());
  EXPECT_TRUE(dropped.Wait(*this, *tier).ok());
}

TEST_F(ThreadedTierTest, WhileClosingCallsAreRefusedAndOpenOnesCancelled) {
  auto tier = Open({.threads = 1});
  door->Set(false);
  const std::vector<std::byte> payload = MadeBytes(1, 10);
  std::atomic<int> cancelled = 0;
  std::atomic<int> refused = 0;
  Tier* const raw = tier.get();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(tier->Put({.key = MadeKey(i), .header = "", .payload_bytes = 10}, {{payload}, nullptr}, kNever,
                          [&](const Status& status) {
                            cancelled += status.code() == StatusCode::kCancelled ? 1 : 0;
                            refused += raw->Drop(OnlyOf(1), kNever, nullptr).code() == StatusCode::kCancelled ? 1 : 0;
                            if (cancelled == 5) door->Set(true);
                          })
                    .ok());
  }
  door->AwaitWaiting(1);
  tier.reset();
  EXPECT_EQ(cancelled, 5);
  EXPECT_EQ(refused, 5);
}

TEST_F(ThreadedTierTest, APutInTheMiddleOfItsWorkDoesNotSurviveADrop) {
  const auto tier = Open({.threads = 2});
  const std::vector<std::byte> payload = MadeBytes(1, 1000);
  door->Set(false);
  Awaited<Status> put;
  ASSERT_TRUE(tier->Put({.key = MadeKey(1), .space = MadeSpace(1), .header = "h", .payload_bytes = 1000},
                        {{payload}, nullptr}, kNever, put.Done())
                  .ok());
  door->AwaitWaiting(1);
  EXPECT_EQ(DropNow(*this, *tier, OnlyOf(1)).ToString(), "OK");
  door->Set(true);
  EXPECT_EQ(put.Wait(*this, *tier).code(), StatusCode::kCancelled);
  EXPECT_EQ(GetMade(*this, *tier, 1, 1000).code(), StatusCode::kNotFound);
}

TEST_F(ThreadedTierTest, ADropIsTakenWhereTheQueueIsFull) {
  const auto tier = Open({.threads = 1, .limits = {.queue_max = 1}});
  const std::vector<std::byte> payload = MadeBytes(1, 1000);
  door->Set(false);
  Awaited<Status> put;
  Awaited<Status> refused;
  const auto record = [](const uint64_t seed) {
    return TierRecord{.key = MadeKey(seed), .space = MadeSpace(seed), .header = "h", .payload_bytes = 1000};
  };
  ASSERT_TRUE(tier->Put(record(1), {{payload}, nullptr}, kNever, put.Done()).ok());
  EXPECT_EQ(tier->Put(record(2), {{payload}, nullptr}, kNever, refused.Done()).code(), StatusCode::kResourceExhausted);
  Awaited<Status> drop;
  EXPECT_TRUE(tier->Drop(OnlyOf(1), kNever, drop.Done()).ok());
  door->Set(true);
  EXPECT_EQ(drop.Wait(*this, *tier).ToString(), "OK");
  (void)put.Wait(*this, *tier);
  EXPECT_EQ(GetMade(*this, *tier, 1, 1000).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace invar::cache
