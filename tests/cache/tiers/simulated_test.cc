// The simulated tier with faults: the same seed gives the same course, every fate happens, nothing comes twice, late
// or wrong.
#include "cache/tiers/simulated.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/split_mix64.h"
#include "cache/tiers/stores.h"
#include "tests/cache/tiers/tier_kinds.h"

namespace invar::cache {
namespace {

constexpr TimeNs kMs = 1'000'000;

// A few hundred random calls on a tier with all faults; one line an end, in order.
std::string CourseOf(const uint64_t seed, TierStats& stats) {
  SimulatedClock clock;
  std::ostringstream course;
  SplitMix64 random(seed);
  constexpr int64_t kBytes = 3000;
  struct Slot {
    std::vector<std::byte> bytes;
    bool is_busy = false;
  };
  std::vector<Slot> slots(8);
  int open = 0;
  const auto tier =
      MakeSimulatedTier(MakeRamStore(20'000), clock,
                        {.seed = seed, .stuck = 60, .failed = 100, .lost = 60, .damaged = 60, .stuck_ns = 200 * kMs});
  for (int step = 0; step < 400; ++step) {
    Slot& slot = slots[random.Next() % slots.size()];
    const uint64_t key = random.Next() % 6;
    const TimeNs deadline = random.Next() % 4 == 0 ? clock.Now() + 5 * kMs : kNever;
    const uint64_t kind = random.Next() % 3;
    if (!slot.is_busy && !tier->is_paused()) {
      const auto end = [&, step, deadline](const Status& status) {
        --open;
        slot.is_busy = false;
        EXPECT_TRUE(status.code() != StatusCode::kDeadlineExceeded || deadline == kNever || clock.Now() >= deadline);
        course << step << ' ' << clock.Now() << ' ' << StatusCodeName(status.code()) << '\n';
      };
      slot.is_busy = true;
      ++open;
      if (kind == 0) {
        slot.bytes = MadeBytes(key, kBytes);
        EXPECT_TRUE(tier->Put({.key = MadeKey(key),
                               .space = MadeSpace(key),
                               .header = std::to_string(key),
                               .payload_bytes = kBytes},
                              {{slot.bytes}, nullptr}, deadline, end)
                        .ok());
      } else if (kind == 1) {
        slot.bytes.assign(kBytes, std::byte{0});
        const auto end_get = [&, end, key](const StatusOr<std::string>& header) {
          if (header.ok()) {
            EXPECT_EQ(*header, std::to_string(key));
            EXPECT_TRUE(slot.bytes == MadeBytes(key, kBytes)) << "garbage";
          }
          end(header.status());
        };
        EXPECT_TRUE(tier->Get(MadeKey(key), {{slot.bytes}, nullptr}, deadline, end_get).ok());
      } else {
        EXPECT_TRUE(tier->Drop(OnlyOf(key), deadline, end).ok());
      }
    }
    clock.Advance(static_cast<TimeNs>(random.Next() % (3 * kMs)));
    tier->Poll(clock.Now());
  }
  while (open > 0) {
    const TimeNs next = tier->Poll(clock.Now());
    if (next == kNever) break;
    clock.Advance(next - clock.Now());
  }
  EXPECT_EQ(open, 0);
  EXPECT_EQ(tier->Poll(clock.Now()), kNever);
  stats = tier->Stats();
  EXPECT_EQ(stats.in_flight, 0);
  return course.str();
}

TEST(SimulatedTierTest, OneSeedIsOneCourseAndAllFatesHappen) {
  std::array<int64_t, kTierMissKinds> get_misses{};
  std::array<int64_t, kTierMissKinds> put_misses{};
  int64_t hits = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TierStats stats;
    const std::string course = CourseOf(seed, stats);
    if (seed % 10 == 0) {
      TierStats again;
      EXPECT_EQ(CourseOf(seed, again), course);
      TierStats other;
      EXPECT_NE(CourseOf(seed + 1000, other), course);
    }
    hits += stats.hits;
    for (size_t i = 0; i < get_misses.size(); ++i) {
      get_misses[i] += stats.get_misses[i];
      put_misses[i] += stats.put_misses[i];
    }
  }
  EXPECT_GT(hits, 100);
  for (const TierMiss miss : {TierMiss::kAbsent, TierMiss::kLate, TierMiss::kCorrupt, TierMiss::kUnavailable}) {
    EXPECT_GT(get_misses[static_cast<size_t>(miss)], 100) << TierMissName(miss);
  }
  for (const TierMiss miss : {TierMiss::kLate, TierMiss::kUnavailable}) {
    EXPECT_GT(put_misses[static_cast<size_t>(miss)], 100) << TierMissName(miss);
  }
}

TEST(SimulatedTierTest, NothingEndsInsideTheCallOrBeforeItsTime) {
  SimulatedClock clock;
  const auto tier =
      MakeSimulatedTier(MakeRamStore(1000), clock, {.delay_min = 10, .delay_max = 10, .bytes_per_second = 1e9});
  const std::vector<std::byte> payload = MadeBytes(1, 90);
  Awaited<Status> put;
  ASSERT_TRUE(
      tier->Put({.key = MadeKey(1), .header = "", .payload_bytes = 90}, {{payload}, nullptr}, kNever, put.Done()).ok());
  EXPECT_FALSE(put.IsDone());
  EXPECT_EQ(tier->Poll(0), 100);
  clock.Advance(99);
  EXPECT_EQ(tier->Poll(clock.Now()), 100);
  EXPECT_FALSE(put.IsDone());
  clock.Advance(1);
  EXPECT_EQ(tier->Poll(clock.Now()), kNever);
  EXPECT_TRUE(put.IsDone());
}

}  // namespace
}  // namespace invar::cache
