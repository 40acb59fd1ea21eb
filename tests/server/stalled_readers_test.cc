// The watch over calls whose readers take nothing: whom it cuts, whom it resets, and whom it leaves alone.
#include "server/calls/stalled_readers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace invar::server {
namespace {

constexpr TimeNs kHour = TimeNs{3600} * 1'000'000'000;

struct FakeCall final : WatchedCall {
  void CutStalledReader(const TimeNs limit) override {
    EXPECT_EQ(limit, kHour);
    ++looks;
  }
  bool IsStuck(const TimeNs limit) const override {
    EXPECT_EQ(limit, kHour + StalledReaders::kStatusGraceNs);
    return stuck;
  }
  void Reset() override {
    ++resets;
    if (on_reset) on_reset();
  }

  bool stuck = false;
  std::function<void()> on_reset;
  int looks = 0;
  std::atomic<int> resets = 0;
};

TEST(StalledReaders, ResetTheStuckAlone) {
  StalledReaders readers(kHour);
  FakeCall well, stuck;
  stuck.stuck = true;
  const int64_t a = readers.Add(well), b = readers.Add(stuck);
  readers.Look();
  EXPECT_EQ(well.looks, 1);
  EXPECT_EQ(well.resets, 0);
  EXPECT_EQ(stuck.resets, 1);
  readers.Remove(a);
  readers.Remove(b);
  readers.Look();
  EXPECT_EQ(well.looks, 1);
}

TEST(StalledReaders, LeaveANewCallAloneThatGotTheMemoryOfAStuckOne) {
  StalledReaders readers(kHour);
  FakeCall first, second;
  first.stuck = second.stuck = true;
  int64_t a = readers.Add(first), b = readers.Add(second);
  // While the first is reset the second ends, and a new call begins at its address.
  first.on_reset = [&] {
    readers.Remove(b);
    second.stuck = false;
    b = readers.Add(second);
  };
  readers.Look();
  EXPECT_EQ(first.resets, 1);
  EXPECT_EQ(second.resets, 0);
  EXPECT_EQ(second.looks, 0) << "it came after the look began";
  readers.Remove(a);
  readers.Remove(b);
}

TEST(StalledReaders, ACallMayEndWhileItIsReset) {
  StalledReaders readers(kHour);
  FakeCall call;
  call.stuck = true;
  const int64_t serial = readers.Add(call);
  call.on_reset = [&] { readers.Remove(serial); };
  readers.Look();
  readers.Look();
  EXPECT_EQ(call.resets, 1);
}

TEST(StalledReaders, AnEndOnAnotherThreadWaitsForTheReset) {
  StalledReaders readers(kHour);
  FakeCall call;
  call.stuck = true;
  const int64_t serial = readers.Add(call);
  std::atomic<bool> removed = false;
  std::thread end;
  call.on_reset = [&] {
    end = std::thread([&] {
      readers.Remove(serial);
      removed = true;
    });
    std::this_thread::yield();
    EXPECT_FALSE(removed);
  };
  readers.Look();
  end.join();
  EXPECT_TRUE(removed);
}

TEST(StalledReaders, TheThreadLooksByItself) {
  StalledReaders readers(1'000'000);
  struct Stuck final : WatchedCall {
    void CutStalledReader(TimeNs) override {}
    bool IsStuck(TimeNs) const override { return true; }
    void Reset() override { resets.fetch_add(1); }
    std::atomic<int> resets = 0;
  } call;
  const int64_t serial = readers.Add(call);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (call.resets == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  readers.Remove(serial);
  EXPECT_GT(call.resets, 0);
}

}  // namespace
}  // namespace invar::server
