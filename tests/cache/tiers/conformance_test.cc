// What every kind of tier must do, the same for all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/split_mix64.h"
#include "cache/tiers/tier.h"
#include "tests/cache/tiers/tier_kinds.h"

namespace invar::cache {
namespace {

constexpr int64_t kBudget = int64_t{64} << 20;

class TierConformance : public testing::TestWithParam<TierKind> {
 protected:
  std::unique_ptr<Tier> Open(const int64_t budget_bytes = kBudget) { return place->Open(budget_bytes); }
  int64_t Misses(const Tier& tier, const TierMiss miss) const {
    return tier.Stats().get_misses[static_cast<size_t>(miss)];
  }

  std::unique_ptr<TierPlace> place = GetParam().make();
};

TEST_P(TierConformance, GivesBackWhatWasPutAtEverySize) {
  const auto tier = Open();
  constexpr int64_t kMiB = int64_t{1} << 20;
  const int64_t sizes[] = {0, 1, 7, 511, 512, 4095, 4096, 4097, 65536, kMiB - 1, kMiB, kMiB + 1, 3 * kMiB + 5};
  for (const int64_t bytes : sizes) {
    SCOPED_TRACE(bytes);
    EXPECT_EQ(PutMade(*place, *tier, 100 + bytes, bytes).ToString(), "OK");
    EXPECT_EQ(GetMade(*place, *tier, 100 + bytes, bytes).ToString(), "OK");
  }
  for (const int64_t bytes : sizes) EXPECT_EQ(GetMade(*place, *tier, 100 + bytes, bytes).ToString(), "OK") << bytes;
}

TEST_P(TierConformance, KeepsHeadersOfEverySizeAndRefusesLonger) {
  const auto tier = Open();
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4096}, int64_t{100'000}, kTierHeaderBytesMax}) {
    SCOPED_TRACE(bytes);
    const std::string header(static_cast<size_t>(bytes), static_cast<char>(bytes % 251));
    const TierRecord record{.key = MadeKey(bytes), .header = header, .payload_bytes = 10};
    EXPECT_EQ(PutNow(*place, *tier, record, MadeBytes(1, 10)).ToString(), "OK");
    const StatusOr<Got> got = GetNow(*place, *tier, record.key, 10);
    ASSERT_EQ(got.status().ToString(), "OK");
    EXPECT_TRUE(got->header == header);
    const auto found = FindNow(*place, *tier, {record.key});
    ASSERT_EQ(found.status().ToString(), "OK");
    ASSERT_EQ(found->size(), 1u);
    EXPECT_TRUE(found->front().header == header);
    EXPECT_EQ(found->front().payload_bytes, 10);
  }
  const TierRecord longer{.key = MadeKey(1), .header = std::string(kTierHeaderBytesMax + 1, 'x'), .payload_bytes = 10};
  EXPECT_EQ(PutNow(*place, *tier, longer, MadeBytes(1, 10)).code(), StatusCode::kInvalidArgument);
}

TEST_P(TierConformance, GathersAndScattersAcrossSpansOfAnySize) {
  const auto tier = Open();
  SplitMix64 random(7);
  for (int round = 0; round < 20; ++round) {
    const int64_t bytes = static_cast<int64_t>(random.Next() % 300'000);
    const std::vector<std::byte> payload = MadeBytes(round, bytes);
    std::vector<std::byte> filled(payload.size());
    TierPayload gather;
    TierSink scatter;
    for (size_t at = 0; at < payload.size();) {
      const size_t count = std::min<size_t>(random.Next() % 50'000, payload.size() - at);  // Empty spans too.
      gather.spans.push_back(std::span(payload).subspan(at, count));
      at += count;
    }
    for (size_t at = 0; at < filled.size();) {
      const size_t count = std::min<size_t>(random.Next() % 70'000, filled.size() - at);
      scatter.spans.push_back(std::span(filled).subspan(at, count));
      at += count;
    }
    Awaited<Status> put;
    ASSERT_TRUE(
        tier->Put({.key = MadeKey(round), .header = "", .payload_bytes = bytes}, gather, kNever, put.Done()).ok());
    ASSERT_EQ(put.Wait(*place, *tier).ToString(), "OK");
    Awaited<StatusOr<std::string>> get;
    ASSERT_TRUE(tier->Get(MadeKey(round), scatter, kNever, get.Done()).ok());
    ASSERT_EQ(get.Wait(*place, *tier).status().ToString(), "OK");
    ASSERT_TRUE(filled == payload) << round;
  }
}

TEST_P(TierConformance, CountsWhatIsAbsent) {
  const auto tier = Open();
  EXPECT_EQ(GetNow(*place, *tier, MadeKey(1), 10).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Misses(*tier, TierMiss::kAbsent), 1);
  const auto found = FindNow(*place, *tier, {MadeKey(1), MadeKey(2)});
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->empty());
  EXPECT_EQ(tier->Stats().hits, 0);
}

TEST_P(TierConformance, FindsInTheOrderOfTheQuestion) {
  const auto tier = Open();
  for (const uint64_t seed : {1, 2, 3}) ASSERT_TRUE(PutMade(*place, *tier, seed, 100).ok());
  const auto found = FindNow(*place, *tier, {MadeKey(3), MadeKey(9), MadeKey(1)});
  ASSERT_EQ(found.status().ToString(), "OK");
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].key, MadeKey(3));
  EXPECT_EQ((*found)[0].header, "header of 3");
  EXPECT_EQ((*found)[1].key, MadeKey(1));
}

TEST_P(TierConformance, ReplacesARecordOfTheSameKey) {
  const auto tier = Open();
  ASSERT_TRUE(
      PutNow(*place, *tier, {.key = MadeKey(1), .header = "old", .payload_bytes = 5000}, MadeBytes(1, 5000)).ok());
  ASSERT_TRUE(PutNow(*place, *tier, {.key = MadeKey(1), .header = "new", .payload_bytes = 70}, MadeBytes(2, 70)).ok());
  const StatusOr<Got> got = GetNow(*place, *tier, MadeKey(1), 70);
  ASSERT_EQ(got.status().ToString(), "OK");
  EXPECT_EQ(got->header, "new");
  EXPECT_TRUE(got->payload == MadeBytes(2, 70));
  if (GetParam().has_budget) {
    EXPECT_EQ(tier->Stats().records, 1);
  }
}

TEST_P(TierConformance, DropsARecordAndNothingElse) {
  const auto tier = Open();
  ASSERT_TRUE(PutMade(*place, *tier, 1, 1000).ok());
  ASSERT_TRUE(PutMade(*place, *tier, 2, 1000).ok());
  EXPECT_EQ(DropNow(*place, *tier, OnlyOf(1)).ToString(), "OK");
  EXPECT_EQ(DropNow(*place, *tier, OnlyOf(3)).ToString(), "OK") << "one that never was";
  EXPECT_EQ(GetMade(*place, *tier, 1, 1000).code(), StatusCode::kNotFound);
  EXPECT_EQ(GetMade(*place, *tier, 2, 1000).ToString(), "OK");
}

// Spaces are dropped one by one, by their first half, or all.
TEST_P(TierConformance, DropsWhatBeginsAlike) {
  const auto tier = Open();
  const auto space = [](const int first, const int second) {
    TierSpace out;
    std::fill_n(out.begin(), out.size() / 2, static_cast<std::byte>(first));
    std::fill(out.begin() + out.size() / 2, out.end(), static_cast<std::byte>(second));
    return out;
  };
  const std::vector<TierSpace> spaces = {space(1, 1), space(1, 2), space(1, 2), space(2, 2), space(2, 1)};
  const auto there = [&] {
    std::vector<size_t> found;
    for (size_t i = 0; i < spaces.size(); ++i) {
      if (GetNow(*place, *tier, MadeKey(i), 100).ok()) found.push_back(i);
    }
    return found;
  };
  for (size_t i = 0; i < spaces.size(); ++i) {
    const TierRecord record{.key = MadeKey(i), .space = spaces[i], .header = "h", .payload_bytes = 100};
    ASSERT_EQ(PutNow(*place, *tier, record, MadeBytes(i, 100)).ToString(), "OK");
  }
  const auto found = FindNow(*place, *tier, {MadeKey(3)});
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().space, spaces[3]);
  EXPECT_EQ(there().size(), 5u);
  EXPECT_EQ(DropNow(*place, *tier, {.space = space(1, 1), .bytes = 32}).ToString(), "OK");
  EXPECT_EQ(there(), (std::vector<size_t>{1, 2, 3, 4}));
  EXPECT_EQ(DropNow(*place, *tier, {.space = space(1, 0), .bytes = 16}).ToString(), "OK");
  EXPECT_EQ(there(), (std::vector<size_t>{3, 4}));
  EXPECT_TRUE(FindNow(*place, *tier, {MadeKey(1), MadeKey(2)})->empty());
  EXPECT_EQ(DropNow(*place, *tier, {}).ToString(), "OK");
  EXPECT_TRUE(there().empty());
  ASSERT_TRUE(PutMade(*place, *tier, 3, 100).ok());
  EXPECT_EQ(GetMade(*place, *tier, 3, 100).ToString(), "OK") << "what is put later stays";
}

TEST_P(TierConformance, ADropIsAfterThePutsBeforeItAndBeforeThoseAfterIt) {
  auto tier = Open();
  constexpr int64_t kBytes = 200'000;
  constexpr uint64_t kPuts = 20;
  const std::vector<std::byte> payload = MadeBytes(1, kBytes);
  std::vector<Awaited<Status>> puts(2 * kPuts);
  const auto put = [&](const uint64_t i) {
    const TierRecord record{.key = MadeKey(i), .space = MadeSpace(7), .header = "h", .payload_bytes = kBytes};
    ASSERT_TRUE(tier->Put(record, {{payload}, nullptr}, kNever, puts[i].Done()).ok());
  };
  for (uint64_t i = 0; i < kPuts; ++i) put(i);
  Awaited<Status> drop;
  ASSERT_TRUE(tier->Drop(OnlyOf(7), kNever, drop.Done()).ok());
  for (uint64_t i = kPuts; i < 2 * kPuts; ++i) put(i);
  EXPECT_EQ(drop.Wait(*place, *tier).ToString(), "OK");
  for (Awaited<Status>& each : puts) (void)each.Wait(*place, *tier);
  const auto judge = [&] {
    for (uint64_t i = 0; i < 2 * kPuts; ++i) {
      EXPECT_EQ(GetNow(*place, *tier, MadeKey(i), kBytes).status().code(),
                i < kPuts ? StatusCode::kNotFound : StatusCode::kOk)
          << i;
    }
  };
  judge();
  if (!GetParam().is_durable) return;
  tier.reset();
  tier = Open();
  judge();
}

TEST_P(TierConformance, SaysWhatItHasEvicted) {
  if (!GetParam().has_budget) GTEST_SKIP() << "a shared tier does not know";
  const auto tier = Open(500'000);
  for (uint64_t seed = 0; seed < 6; ++seed) ASSERT_TRUE(PutMade(*place, *tier, seed, 100'000).ok());
  std::vector<TierKey> gone = tier->TakeGone();
  ASSERT_GE(gone.size(), 2u);
  EXPECT_EQ(static_cast<int64_t>(gone.size()), tier->Stats().evictions);
  for (size_t i = 0; i < gone.size(); ++i) EXPECT_EQ(gone[i], MadeKey(i)) << "oldest first";
  EXPECT_TRUE(tier->TakeGone().empty());
  ASSERT_FALSE(GetNow(*place, *tier, MadeKey(5), 7).ok()) << "of another size: damaged";
  EXPECT_EQ(tier->TakeGone(), std::vector<TierKey>{MadeKey(5)});
}

TEST_P(TierConformance, WhatWasUsedEarlierDoesNotPushOutWhatWasUsedLater) {
  if (!GetParam().has_budget) GTEST_SKIP() << "the server has the budget";
  const auto tier = Open(500'000);
  const auto put = [&](const uint64_t seed, const TimeNs used_at) {
    return PutNow(*place, *tier, {.key = MadeKey(seed), .header = "h", .payload_bytes = 100'000, .used_at = used_at},
                  MadeBytes(seed, 100'000));
  };
  for (const uint64_t seed : {1, 2, 3, 4}) ASSERT_EQ(put(seed, static_cast<TimeNs>(1000 - seed)).ToString(), "OK");
  EXPECT_EQ(put(5, 900).code(), StatusCode::kResourceExhausted) << "all that is there was used later";
  EXPECT_EQ(put(6, 998).ToString(), "OK");
  const auto is_there = [&](const uint64_t seed) { return GetNow(*place, *tier, MadeKey(seed), 100'000).ok(); };
  EXPECT_FALSE(is_there(4)) << "used earliest";
  for (const uint64_t seed : {1, 2, 3, 6}) EXPECT_TRUE(is_there(seed)) << seed;
}

TEST_P(TierConformance, SaysOnUseWhetherARecordIsThereOrOnItsWay) {
  const auto tier = Open(500'000);
  EXPECT_EQ(tier->Use(MadeKey(1), 10), !GetParam().has_budget) << "a shared tier does not know";
  const std::vector<std::byte> payload = MadeBytes(1, 100'000);
  std::vector<Awaited<Status>> puts(4);
  for (uint64_t seed = 0; seed < puts.size(); ++seed) {
    const TierRecord record{.key = MadeKey(seed), .payload_bytes = 100'000, .used_at = static_cast<TimeNs>(100 + seed)};
    ASSERT_TRUE(tier->Put(record, {{payload}, nullptr}, kNever, puts[seed].Done()).ok());
  }
  EXPECT_TRUE(tier->Use(MadeKey(0), 1000));
  for (Awaited<Status>& put : puts) ASSERT_EQ(put.Wait(*place, *tier).ToString(), "OK");
  EXPECT_TRUE(tier->Use(MadeKey(2), 1000));
  if (!GetParam().has_budget) return;
  const TierRecord pushes{.key = MadeKey(9), .payload_bytes = 250'000, .used_at = 500};
  ASSERT_EQ(PutNow(*place, *tier, pushes, MadeBytes(9, 250'000)).ToString(), "OK");
  for (const uint64_t seed : {0, 2, 9}) EXPECT_TRUE(tier->Use(MadeKey(seed), 1)) << seed;
  for (const uint64_t seed : {1, 3}) EXPECT_FALSE(tier->Use(MadeKey(seed), 2000)) << seed << " was used earliest";
}

TEST_P(TierConformance, ASinkOfAnotherSizeIsDataLossAndTheRecordGoes) {
  const auto tier = Open();
  for (const int64_t asked : {int64_t{0}, int64_t{999}, int64_t{1001}, int64_t{5'000'000}}) {
    ASSERT_TRUE(PutMade(*place, *tier, 1, 1000).ok());
    EXPECT_EQ(GetNow(*place, *tier, MadeKey(1), asked).status().code(), StatusCode::kDataLoss) << asked;
    EXPECT_EQ(GetNow(*place, *tier, MadeKey(1), 1000).status().code(), StatusCode::kNotFound) << asked;
  }
  EXPECT_EQ(Misses(*tier, TierMiss::kCorrupt), 4);
}

TEST_P(TierConformance, EvictsTheOldestUseWithinItsBudget) {
  if (!GetParam().has_budget) GTEST_SKIP() << "the server has the budget";
  const auto tier = Open(1'000'000);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    ASSERT_EQ(PutMade(*place, *tier, seed, 100'000).ToString(), "OK");
  }
  ASSERT_EQ(GetMade(*place, *tier, 0, 100'000).ToString(), "OK");  // Now the youngest.
  for (uint64_t seed = 8; seed < 12; ++seed) {
    ASSERT_EQ(PutMade(*place, *tier, seed, 100'000).ToString(), "OK");
    EXPECT_LE(tier->Stats().bytes, 1'000'000);
  }
  EXPECT_EQ(GetMade(*place, *tier, 0, 100'000).ToString(), "OK");
  EXPECT_EQ(GetMade(*place, *tier, 1, 100'000).code(), StatusCode::kNotFound);
  EXPECT_EQ(GetMade(*place, *tier, 11, 100'000).ToString(), "OK");
  const TierStats stats = tier->Stats();
  EXPECT_GE(stats.evictions, 3);
  EXPECT_EQ(stats.records + stats.evictions, 12);
  EXPECT_EQ(stats.budget_bytes, 1'000'000);
  EXPECT_EQ(PutMade(*place, *tier, 99, 2'000'000).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(tier->Stats().put_misses[static_cast<size_t>(TierMiss::kFull)], 1);
  EXPECT_EQ(tier->Stats().records, stats.records) << "what cannot fit evicts nothing";
}

TEST_P(TierConformance, ListsItsRecordsOldestUseFirst) {
  const auto tier = Open();
  for (uint64_t seed = 0; seed < 4; ++seed) ASSERT_TRUE(PutMade(*place, *tier, seed, 10).ok());
  ASSERT_TRUE(GetMade(*place, *tier, 1, 10).ok());
  std::vector<std::string> headers;
  for (const TierRecord& record : tier->Inventory()) headers.push_back(record.header);
  if (!GetParam().has_budget) {
    EXPECT_TRUE(headers.empty());
    return;
  }
  EXPECT_EQ(headers, (std::vector<std::string>{"header of 0", "header of 2", "header of 3", "header of 1"}));
}

TEST_P(TierConformance, KeepsItsRecordsWhileClosedOrNotAtAll) {
  auto tier = Open();
  for (uint64_t seed = 0; seed < 5; ++seed) ASSERT_TRUE(PutMade(*place, *tier, seed, 70'000).ok());
  ASSERT_TRUE(GetMade(*place, *tier, 0, 70'000).ok());
  ASSERT_TRUE(DropNow(*place, *tier, OnlyOf(2)).ok());
  tier.reset();
  tier = Open();
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const StatusCode wanted = GetParam().is_durable && seed != 2 ? StatusCode::kOk : StatusCode::kNotFound;
    EXPECT_EQ(GetMade(*place, *tier, seed, 70'000).code(), wanted) << seed;
  }
}

TEST_P(TierConformance, LetsTheCallersMemoryGoBeforeDoneRuns) {
  const auto tier = Open();
  const std::vector<std::byte> payload = MadeBytes(1, 100'000);
  std::vector<std::byte> filled(payload.size());
  std::weak_ptr<int> watched;
  std::atomic<int> held_in_done = 0;
  Awaited<Status> put;
  {
    auto handle = std::make_shared<int>(0);
    watched = handle;
    const auto done = [&, next = put.Done()](Status status) {
      held_in_done += watched.expired() ? 0 : 1;
      next(std::move(status));
    };
    ASSERT_TRUE(tier->Put({.key = MadeKey(1), .header = "", .payload_bytes = 100'000}, {{payload}, std::move(handle)},
                          kNever, done)
                    .ok());
  }
  EXPECT_TRUE(put.Wait(*place, *tier).ok());
  Awaited<StatusOr<std::string>> get;
  {
    auto handle = std::make_shared<int>(0);
    watched = handle;
    const auto done = [&, next = get.Done()](StatusOr<std::string> header) {
      held_in_done += watched.expired() ? 0 : 1;
      next(std::move(header));
    };
    ASSERT_TRUE(tier->Get(MadeKey(1), {{filled}, std::move(handle)}, kNever, done).ok());
  }
  EXPECT_TRUE(get.Wait(*place, *tier).ok());
  EXPECT_EQ(held_in_done, 0);
}

TEST_P(TierConformance, ADeadlineThatHasPassedIsALateMiss) {
  const auto tier = Open();
  ASSERT_TRUE(PutMade(*place, *tier, 1, 1000).ok());
  std::vector<std::byte> filled(1000);
  Awaited<StatusOr<std::string>> get;
  ASSERT_TRUE(tier->Get(MadeKey(1), {{filled}, nullptr}, place->Now() - 1, get.Done()).ok());
  EXPECT_EQ(get.Wait(*place, *tier).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(filled == std::vector<std::byte>(1000)) << "the sink is not touched";
  EXPECT_EQ(Misses(*tier, TierMiss::kLate), 1);
  EXPECT_EQ(GetMade(*place, *tier, 1, 1000).ToString(), "OK") << "the record is still there";
}

TEST_P(TierConformance, ClosingEndsEveryCallOnce) {
  std::vector<Awaited<Status>> puts(50);
  std::vector<Awaited<StatusOr<std::string>>> gets(50);
  const std::vector<std::byte> payload = MadeBytes(1, 300'000);
  std::vector<std::vector<std::byte>> filled(gets.size(), std::vector<std::byte>(300'000));
  size_t accepted = 0;
  {
    const auto tier = Open();
    for (size_t i = 0; i < puts.size(); ++i) {
      ASSERT_TRUE(tier->Put({.key = MadeKey(i), .header = "", .payload_bytes = 300'000}, {{payload}, nullptr}, kNever,
                            puts[i].Done())
                      .ok());
      ASSERT_TRUE(tier->Get(MadeKey(i), {{filled[i]}, nullptr}, kNever, gets[i].Done()).ok());
      accepted += 2;
    }
    EXPECT_GT(accepted, 0u);
  }
  for (size_t i = 0; i < puts.size(); ++i) {
    EXPECT_TRUE(puts[i].IsDone()) << i;
    EXPECT_TRUE(gets[i].IsDone()) << i;
  }
}

TEST_P(TierConformance, CountsWhatItDoes) {
  const auto tier = Open();
  for (uint64_t seed = 0; seed < 3; ++seed) ASSERT_TRUE(PutMade(*place, *tier, seed, 200'000).ok());
  ASSERT_TRUE(GetMade(*place, *tier, 0, 200'000).ok());
  ASSERT_FALSE(GetMade(*place, *tier, 7, 200'000).ok());
  ASSERT_TRUE(DropNow(*place, *tier, OnlyOf(0)).ok());
  ASSERT_TRUE(FindNow(*place, *tier, {MadeKey(1)}).ok());
  const TierStats stats = tier->Stats();
  EXPECT_EQ(stats.puts, 3);
  EXPECT_EQ(stats.stored, 3);
  EXPECT_EQ(stats.gets, 2);
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.drops, 1);
  EXPECT_EQ(stats.finds, 1);
  EXPECT_EQ(stats.bytes_written, 600'000);
  EXPECT_EQ(stats.bytes_read, 200'000);
  EXPECT_GT(stats.write_bytes_per_second, 0);
  EXPECT_GT(stats.read_bytes_per_second, 0);
  EXPECT_EQ(stats.in_flight, 0);
  EXPECT_EQ(stats.in_flight_bytes, 0);
  if (GetParam().has_budget) {
    EXPECT_EQ(stats.records, 2);
    EXPECT_GE(stats.bytes, 400'000);
  }
}

// Many calls at once over few keys, memory of the caller reused as soon as `done` says so: what comes is the record of
// that key or a miss.
TEST_P(TierConformance, ServesNoGarbageToManyCallsAtOnce) {
  const auto tier = Open(4'000'000);
  SplitMix64 random(11);
  struct Slot {
    uint64_t seed = 0;
    std::vector<std::byte> bytes;
    std::optional<Awaited<Status>> put;
    std::optional<Awaited<StatusOr<std::string>>> get;
  };
  std::vector<Slot> slots(12);
  const auto bytes_of = [](const uint64_t seed) { return static_cast<int64_t>(seed * 40'009 % 1'500'000); };
  int hits = 0;
  for (int step = 0; step < 400; ++step) {
    Slot& slot = slots[random.Next() % slots.size()];
    if (slot.put) {
      const Status status = slot.put->Wait(*place, *tier);
      ASSERT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted ||
                  status.code() == StatusCode::kCancelled)  // Dropped meanwhile.
          << status.ToString();
    }
    if (slot.get) {
      const StatusOr<std::string> header = slot.get->Wait(*place, *tier);
      if (header.ok()) {
        ++hits;
        ASSERT_EQ(*header, std::to_string(slot.seed));
        ASSERT_TRUE(slot.bytes == MadeBytes(slot.seed, bytes_of(slot.seed))) << slot.seed;
      } else {
        ASSERT_EQ(header.status().code(), StatusCode::kNotFound) << header.status().ToString();
      }
    }
    slot.put.reset();
    slot.get.reset();
    slot.seed = random.Next() % 20;
    const TierKey key = MadeKey(slot.seed);
    const int64_t bytes = bytes_of(slot.seed);
    switch (random.Next() % 5) {
      case 0:
      case 1:
        slot.bytes = MadeBytes(slot.seed, bytes);
        slot.put.emplace();
        ASSERT_TRUE(tier->Put({.key = key,
                               .space = MadeSpace(slot.seed),
                               .header = std::to_string(slot.seed),
                               .payload_bytes = bytes},
                              {{slot.bytes}, nullptr}, kNever, slot.put->Done())
                        .ok());
        break;
      case 2:
      case 3:
        slot.bytes.assign(static_cast<size_t>(bytes), std::byte{0});
        slot.get.emplace();
        ASSERT_TRUE(tier->Get(key, {{slot.bytes}, nullptr}, kNever, slot.get->Done()).ok());
        break;
      default:
        slot.put.emplace();
        ASSERT_TRUE(tier->Drop(OnlyOf(slot.seed), kNever, slot.put->Done()).ok());
    }
  }
  for (Slot& slot : slots) {
    if (slot.put) (void)slot.put->Wait(*place, *tier);
    if (slot.get) (void)slot.get->Wait(*place, *tier);
  }
  EXPECT_GT(hits, 10);
  EXPECT_EQ(tier->Stats().in_flight, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TierConformance, testing::ValuesIn(AllTierKinds()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace invar::cache
