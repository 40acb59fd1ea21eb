// The disk store where conformance does not reach: damage, faults of every system call, full disks, foreign folders,
// and processes killed while they write.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "base/split_mix64.h"
#include "cache/tiers/disk_format.h"
#include "cache/tiers/stores.h"
#include "cache/tiers/threaded_tier.h"
#include "tests/cache/tiers/faulty_files.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/cache/tiers/tier_kinds.h"

namespace invar::cache {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr char kStoreId[] = "model aaaa numerics 1";

class DiskTest : public testing::Test, public TierPlace {
 protected:
  // Thousands of records are damaged on purpose, each with a line in the log.
  DiskTest() { Logger("cache")->set_level(spdlog::level::off); }

  std::unique_ptr<Tier> Open(const int64_t budget_bytes) override {
    StatusOr<std::unique_ptr<Tier>> tier = TryOpen(budget_bytes);
    Check(tier.ok(), "the folder opens", tier.status().message());
    return *std::move(tier);
  }
  StatusOr<std::unique_ptr<Tier>> TryOpen(const int64_t budget_bytes, const std::string& store_id = kStoreId) {
    StatusOr<std::unique_ptr<TierStore>> store =
        MakeDiskStore({.path = folder.path() + "/tier", .budget_bytes = budget_bytes, .store_id = store_id}, files);
    if (!store.ok()) return store.status();
    return MakeThreadedTier(*std::move(store), clock, {.threads = 1});
  }
  TimeNs Now() const override { return clock.Now(); }

  std::vector<std::string> Files(const std::string& suffix) const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(folder.path() + "/tier")) {
      if (entry.path().string().ends_with(suffix)) paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  RealClock clock;
  TempFolder folder;
  FaultyFiles files;
};

constexpr int64_t kBudget = int64_t{64} << 20;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void Spill(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

TEST_F(DiskTest, AFolderServesOneProcessAtATime) {
  auto first = Open(kBudget);
  const auto second = TryOpen(kBudget);
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.status().message(), HasSubstr("another process"));
  first.reset();
  EXPECT_TRUE(TryOpen(kBudget).ok());
}

TEST_F(DiskTest, AnotherModelsFolderIsRefusedAndLeftAlone) {
  ASSERT_TRUE(PutMade(*this, *Open(kBudget), 1, 1000).ok());
  const auto other = TryOpen(kBudget, "model bbbb numerics 1");
  EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.status().message(), HasSubstr("model aaaa"));
  EXPECT_THAT(other.status().message(), HasSubstr("model bbbb"));
  EXPECT_EQ(GetMade(*this, *Open(kBudget), 1, 1000).ToString(), "OK");
}

TEST_F(DiskTest, AFolderWithOtherFilesIsRefused) {
  fs::create_directory(folder.path() + "/tier");
  Spill(folder.path() + "/tier/letter.txt", "dear all");
  const auto tier = TryOpen(kBudget);
  EXPECT_EQ(tier.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(tier.status().message(), HasSubstr("letter.txt"));
  EXPECT_EQ(Slurp(folder.path() + "/tier/letter.txt"), "dear all");
}

TEST_F(DiskTest, ADamagedStoreFileIsRefusedWithWhatToDo) {
  Open(kBudget).reset();
  const std::string path = folder.path() + "/tier/store";
  const std::string text = Slurp(path);
  for (size_t i = 0; i < text.size(); i += 7) {
    std::string bad = text;
    bad[i] ^= 4;
    Spill(path, bad);
    EXPECT_EQ(TryOpen(kBudget).status().code(), StatusCode::kFailedPrecondition) << i;
  }
  Spill(path, text.substr(0, text.size() / 2));
  EXPECT_THAT(TryOpen(kBudget).status().message(), HasSubstr("remove the folder"));
}

TEST_F(DiskTest, AParentThatDoesNotExistIsAnError) {
  const auto store = MakeDiskStore({.path = folder.path() + "/a/b", .budget_bytes = 1, .store_id = "x"}, files);
  EXPECT_EQ(store.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(store.status().message(), HasSubstr("/a/b"));
}

TEST_F(DiskTest, ASmallerBudgetKeepsTheYoungestUse) {
  {
    const auto tier = Open(kBudget);
    for (uint64_t seed = 0; seed < 6; ++seed) {
      ASSERT_TRUE(PutMade(*this, *tier, seed, 100'000).ok());
    }
  }
  // The order of use is in the files' times; set apart, since the system's clock for them is coarse.
  const auto paths = Files(".record");
  ASSERT_EQ(paths.size(), 6u);
  const auto now = fs::file_time_type::clock::now();
  for (const std::string& path : paths) {
    const auto sequence = std::stoll(path.substr(path.size() - 7 - 4, 4), nullptr, 16);
    fs::last_write_time(path, now - std::chrono::seconds(sequence == 1 ? 1 : 100 - sequence));
  }
  const auto tier = Open(350'000);
  EXPECT_EQ(tier->Stats().records, 3);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const bool kept = seed == 0 || seed >= 4;
    EXPECT_EQ(GetMade(*this, *tier, seed, 100'000).code(), kept ? StatusCode::kOk : StatusCode::kNotFound) << seed;
  }
  EXPECT_EQ(Files(".record").size(), 3u) << "their space is given back";
}

TEST_F(DiskTest, WhatAKilledProcessLeftIsRemovedAtOpen) {
  ASSERT_TRUE(PutMade(*this, *Open(kBudget), 1, 1000).ok());
  const std::string record = Files(".record").at(0);
  Spill(record.substr(0, record.size() - 7) + ".partial", "half");
  // Killed between the new version's name and the old one's removal.
  std::string newer = record;
  newer.replace(newer.size() - 8, 1, "9");
  fs::copy_file(record, newer);
  const auto tier = Open(kBudget);
  EXPECT_EQ(tier->Stats().records, 1);
  EXPECT_EQ(Files(".partial").size(), 0u);
  EXPECT_EQ(Files(".record"), std::vector<std::string>{newer});
  EXPECT_EQ(GetMade(*this, *tier, 1, 1000).ToString(), "OK");
  ASSERT_TRUE(PutMade(*this, *tier, 1, 1000).ok()) << "a name beyond the newer one";
  EXPECT_EQ(GetMade(*this, *tier, 1, 1000).ToString(), "OK");
}

// One record, damaged in one way a round: a miss with a reason, and the file goes.
TEST_F(DiskTest, EveryFlippedBitTruncationAndSwapIsSeen) {
  constexpr int64_t kBytes = 2 * kSectionBytes + 5000;
  ASSERT_TRUE(PutMade(*this, *Open(kBudget), 1, kBytes).ok());
  const std::string sound_path = Files(".record").at(0);
  const std::string sound = Slurp(sound_path);
  ASSERT_EQ(static_cast<int64_t>(sound.size()), RecordLayout(11, kBytes).file_bytes);
  ASSERT_TRUE(PutMade(*this, *Open(kBudget), 2, kBytes).ok());
  std::string other;
  for (const std::string& path : Files(".record")) {
    if (path != sound_path) other = Slurp(path);
  }
  {
    const auto tier = Open(kBudget);
    ASSERT_TRUE(DropNow(*this, *tier, OnlyOf(2)).ok());
  }
  SplitMix64 random(3);
  const auto expect_seen = [&](const std::string& bad, const std::string& how) {
    Spill(sound_path, bad);
    const auto tier = Open(kBudget);
    EXPECT_EQ(GetMade(*this, *tier, 1, kBytes).code(), StatusCode::kDataLoss) << how;
    EXPECT_EQ(tier->Stats().records, 0) << how;
    EXPECT_EQ(tier->Stats().get_misses[static_cast<size_t>(TierMiss::kCorrupt)], 1) << how;
    EXPECT_TRUE(Files(".record").empty()) << how;
  };
  for (int round = 0; round < 1000; ++round) {
    std::string bad = sound;
    // Half of them in the head.
    const size_t at = round % 2 == 0 ? random.Next() % bad.size() : random.Next() % static_cast<size_t>(kBlockBytes);
    const int bit = static_cast<int>(random.Next() % 8);
    bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
    expect_seen(bad, "bit " + std::to_string(bit) + " of byte " + std::to_string(at));
  }
  for (int round = 0; round < 200; ++round) {
    const size_t bytes = round == 0 ? 0 : random.Next() % sound.size();
    expect_seen(sound.substr(0, bytes), "cut to " + std::to_string(bytes));
  }
  const auto blocks = static_cast<size_t>(static_cast<int64_t>(sound.size()) / kBlockBytes);
  const auto block_bytes = static_cast<size_t>(kBlockBytes);
  for (int round = 0; round < 200; ++round) {
    const size_t a = random.Next() % blocks;
    const size_t b = (a + 1 + random.Next() % (blocks - 1)) % blocks;
    std::string bad = sound;
    bad.replace(a * block_bytes, block_bytes, sound, b * block_bytes, block_bytes);
    bad.replace(b * block_bytes, block_bytes, sound, a * block_bytes, block_bytes);
    expect_seen(bad, "blocks " + std::to_string(a) + " and " + std::to_string(b) + " swapped");
    std::string mixed = sound;
    mixed.replace(a * block_bytes, block_bytes, other, a * block_bytes, block_bytes);
    expect_seen(mixed, "block " + std::to_string(a) + " of another record");
  }
  expect_seen(other, "another record under this name");
  expect_seen(sound + std::string(block_bytes, '\0'), "a block longer");
  Spill(sound_path, sound);
  EXPECT_EQ(GetMade(*this, *Open(kBudget), 1, kBytes).ToString(), "OK") << "the undamaged file is still good";
}

// As after a power cut that undid the removal of the files, but not the line that was written before.
TEST_F(DiskTest, WhatWasDroppedStaysAwayThoughItsFilesAreThere) {
  {
    const auto tier = Open(kBudget);
    for (const uint64_t seed : {1, 2, 3}) ASSERT_TRUE(PutMade(*this, *tier, seed, 1000).ok());
  }
  std::vector<std::pair<std::string, std::string>> files;
  for (const std::string& path : Files(".record")) files.emplace_back(path, Slurp(path));
  ASSERT_TRUE(DropNow(*this, *Open(kBudget), OnlyOf(1)).ok());
  EXPECT_EQ(Files(".record").size(), 2u);
  for (const auto& [path, bytes] : files) Spill(path, bytes);
  {
    const auto tier = Open(kBudget);
    EXPECT_EQ(tier->Stats().records, 2);
    EXPECT_EQ(GetMade(*this, *tier, 1, 1000).code(), StatusCode::kNotFound);
    EXPECT_EQ(GetMade(*this, *tier, 2, 1000).ToString(), "OK");
    EXPECT_EQ(Files(".record").size(), 2u);
    ASSERT_TRUE(PutMade(*this, *tier, 1, 1000).ok());
  }
  EXPECT_EQ(GetMade(*this, *Open(kBudget), 1, 1000).ToString(), "OK") << "put after the drop";
}

TEST_F(DiskTest, WithoutASoundListOfDropsNothingIsBelieved) {
  ASSERT_TRUE(PutMade(*this, *Open(kBudget), 1, 1000).ok());
  ASSERT_TRUE(DropNow(*this, *Open(kBudget), OnlyOf(9)).ok());
  const std::string list = Files("dropped").at(0);
  std::string bad = Slurp(list);
  bad[bad.size() / 2] ^= 1;
  Spill(list, bad);
  {
    const auto tier = Open(kBudget);
    EXPECT_EQ(tier->Stats().records, 0);
    EXPECT_TRUE(Files(".record").empty());
    ASSERT_TRUE(PutMade(*this, *tier, 2, 1000).ok());
  }
  EXPECT_EQ(GetMade(*this, *Open(kBudget), 2, 1000).ToString(), "OK") << "the list is sound again";
}

// As the system may at any time, on a network's disk often.
TEST_F(DiskTest, SmallFilesThatComeAndGoInPiecesAreWhole) {
  files.CutSmallFilesAt(7);
  ASSERT_TRUE(PutMade(*this, *Open(kBudget), 1, 1000).ok());
  ASSERT_TRUE(DropNow(*this, *Open(kBudget), OnlyOf(9)).ok());
  EXPECT_GT(files.cut(), 10);
  EXPECT_EQ(GetMade(*this, *Open(kBudget), 1, 1000).ToString(), "OK") << "what was written in pieces is read in pieces";
  files.CutSmallFilesAt(INT64_MAX);
  EXPECT_EQ(GetMade(*this, *Open(kBudget), 1, 1000).ToString(), "OK");
}

TEST_F(DiskTest, DamagedHeadsAreNoRecordsOfTheInventory) {
  {
    const auto tier = Open(kBudget);
    for (uint64_t seed = 0; seed < 3; ++seed) ASSERT_TRUE(PutMade(*this, *tier, seed, 1000).ok());
  }
  const std::string path = Files(".record").at(0);
  std::string bad = Slurp(path);
  bad[200] ^= 1;
  Spill(path, bad);
  const auto tier = Open(kBudget);
  EXPECT_EQ(tier->Inventory().size(), 2u);
  EXPECT_EQ(tier->Stats().records, 2);
  EXPECT_EQ(tier->Stats().damaged, 1);
  EXPECT_EQ(Files(".record").size(), 2u);
}

struct FaultCase {
  const char* name;
  int error;
};
void PrintTo(const FaultCase& fault, std::ostream* out) { *out << fault.name; }

class DiskFaults : public DiskTest, public testing::WithParamInterface<FaultCase> {};

// Every system call of open, put, get, replace, drop, find and inventory fails once in turn: what comes back is right
// or a miss, and afterwards the folder works as ever.
TEST_P(DiskFaults, EveryCallMayFailOnce) {
  constexpr int64_t kBytes = kSectionBytes + 3000;
  int64_t points = 0;
  for (int64_t n = 1;; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    fs::remove_all(folder.path() + "/tier");
    files.FailCall(n, GetParam().error);
    int failed = 0;
    const auto note = [&](const Status& status) {
      if (status.ok()) return;
      ++failed;
      EXPECT_NE(status.code(), StatusCode::kInternal) << status.ToString();
      EXPECT_FALSE(status.message().empty());
    };
    if (StatusOr<std::unique_ptr<Tier>> tier = TryOpen(kBudget); tier.ok()) {
      note(PutMade(*this, **tier, 1, kBytes));
      note(GetMade(*this, **tier, 1, kBytes));
      note(PutMade(*this, **tier, 1, kBytes));  // Replaces.
      note(GetMade(*this, **tier, 1, kBytes));
      note(PutMade(*this, **tier, 2, 10));
      note(FindNow(*this, **tier, {MadeKey(1), MadeKey(2)}).status());
      (*tier)->Inventory();
      note(DropNow(*this, **tier, OnlyOf(2)));
    } else {
      note(tier.status());
    }
    {  // Again over the same folder: now the n-th call may be one of opening a folder that exists.
      const StatusOr<std::unique_ptr<Tier>> tier = TryOpen(kBudget);
      if (tier.ok()) note(GetMade(*this, **tier, 1, kBytes));
    }
    const bool is_over = !files.has_failed();
    files.FailCall(0, 0);
    const auto tier = Open(kBudget);
    for (const uint64_t seed : {1, 2}) {
      const Status status = GetMade(*this, *tier, seed, seed == 1 ? kBytes : 10);
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kNotFound || status.code() == StatusCode::kDataLoss)
          << status.ToString();
    }
    EXPECT_EQ(PutMade(*this, *tier, 1, kBytes).ToString(), "OK");
    EXPECT_EQ(GetMade(*this, *tier, 1, kBytes).ToString(), "OK");
    EXPECT_EQ(static_cast<int64_t>(Files(".record").size()), tier->Stats().records) << "no file is forgotten";
    EXPECT_EQ(Files(".partial").size(), 0u);
    if (is_over) {
      EXPECT_EQ(failed, 0) << "without a fault all succeeds";
      break;
    }
    ++points;
  }
  EXPECT_GT(points, 40);
  RecordProperty("points", static_cast<int>(points));
}

INSTANTIATE_TEST_SUITE_P(Errors, DiskFaults,
                         testing::Values(FaultCase{"EIO", EIO}, FaultCase{"ENOSPC", ENOSPC},
                                         FaultCase{"EMFILE", EMFILE}, FaultCase{"EACCES", EACCES},
                                         FaultCase{"EROFS", EROFS}, FaultCase{"Short", FaultyFiles::kShort}),
                         [](const auto& info) { return std::string(info.param.name); });

// Its lines, as they would stand in the log.
class LogLines {
 public:
  LogLines() {
    sink_->set_pattern("%v");
    Logger("cache")->sinks().push_back(sink_);
    Logger("cache")->set_level(spdlog::level::warn);
  }
  ~LogLines() {
    Logger("cache")->sinks().pop_back();
    Logger("cache")->set_level(spdlog::level::off);
  }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::sinks::ostream_sink_mt> sink_ = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
};

// A file where the folder was: no call of the system succeeds. It is said once, costs no memory, and ends.
TEST_F(DiskTest, WhileItsFolderIsGoneAllIsAMissAndAfterwardsAllIsThere) {
  const auto tier = Open(kBudget);
  for (uint64_t seed = 0; seed < 20; ++seed) ASSERT_EQ(PutMade(*this, *tier, seed, 5000).ToString(), "OK");
  const LogLines log;
  fs::rename(folder.path() + "/tier", folder.path() + "/away");
  Spill(folder.path() + "/tier", "no folder");
  const int64_t removes = files.removes();
  for (uint64_t seed = 0; seed < 200; ++seed) {
    EXPECT_EQ(PutMade(*this, *tier, 1000 + seed, 5000).code(), StatusCode::kUnavailable);
    EXPECT_EQ(GetMade(*this, *tier, seed % 20, 5000).code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(files.removes(), removes) << "what was never made need not go";
  EXPECT_EQ(tier->Stats().put_misses[static_cast<size_t>(TierMiss::kUnavailable)], 200);
  EXPECT_EQ(tier->Stats().get_misses[static_cast<size_t>(TierMiss::kUnavailable)], 200);
  const std::string failing = log.text();
  EXPECT_EQ(std::count(failing.begin(), failing.end(), '\n'), 2) << "one of reading, one of writing: " << failing;
  fs::remove(folder.path() + "/tier");
  fs::rename(folder.path() + "/away", folder.path() + "/tier");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(GetMade(*this, *tier, seed, 5000).ToString(), "OK");
    EXPECT_EQ(PutMade(*this, *tier, 1000 + seed, 5000).ToString(), "OK");
  }
  const std::string ended = log.text().substr(failing.size());
  EXPECT_EQ(std::count(ended.begin(), ended.end(), '\n'), 2) << ended;
  EXPECT_THAT(ended, HasSubstr("works again after 200 faults"));
  EXPECT_EQ(static_cast<int64_t>(Files(".record").size()), 40);
  EXPECT_EQ(Files(".partial").size(), 0u);
}

TEST_F(DiskTest, AFullDiskEvictsBelowTheBudgetAndRefusesWhatCannotFit) {
  files.LimitDisk(int64_t{1} << 20);
  const auto tier = Open(kBudget);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    ASSERT_EQ(PutMade(*this, *tier, seed, 100'000).ToString(), "OK") << seed;
    ASSERT_EQ(GetMade(*this, *tier, seed, 100'000).ToString(), "OK") << seed;
  }
  EXPECT_GT(tier->Stats().evictions, 10);
  EXPECT_EQ(GetMade(*this, *tier, 0, 100'000).code(), StatusCode::kNotFound);
  EXPECT_EQ(PutMade(*this, *tier, 99, 5'000'000).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(tier->Stats().put_misses[static_cast<size_t>(TierMiss::kFull)], 1);
  EXPECT_EQ(PutMade(*this, *tier, 98, 100'000).ToString(), "OK") << "and goes on";
  EXPECT_EQ(Files(".partial").size(), 0u);
}

// A child writes versions of a few records and says which are acknowledged, until it is killed at a random moment.
[[noreturn]] void WriteUntilKilled(const std::string& path, const int64_t budget_bytes, const uint64_t seed,
                                   const int acknowledge_fd) {
  const RealClock clock;
  const auto files = MakeSystemFiles();
  auto store = MakeDiskStore({.path = path, .budget_bytes = budget_bytes, .store_id = kStoreId}, *files);
  if (!store.ok()) _exit(3);
  const auto tier = MakeThreadedTier(*std::move(store), clock, {.threads = 2});
  SplitMix64 random(seed);
  Mutex mu;
  CondVar cv;
  int open = 0;
  for (uint32_t version = 1;; ++version) {
    const uint64_t key = random.Next() % 8;
    const auto made = std::make_shared<std::vector<std::byte>>(
        MadeBytes(key * 1'000'000 + version, static_cast<int64_t>(random.Next() % 400'000)));
    const TierRecord record{.key = MadeKey(key),
                            .header = std::to_string(seed) + "/" + std::to_string(version),
                            .payload_bytes = static_cast<int64_t>(made->size())};
    {
      const MutexLock lock(mu);
      while (open >= 3) cv.Wait(mu);
      ++open;
    }
    const auto done = [&, key, version](const Status& status) {
      const std::array<uint32_t, 2> line = {static_cast<uint32_t>(key), version};
      if (status.ok() && write(acknowledge_fd, line.data(), sizeof(line)) != sizeof(line)) _exit(4);
      const MutexLock lock(mu);
      --open;
      cv.NotifyAll();
    };
    if (!tier->Put(record, {{*made}, made}, kNever, done).ok()) _exit(5);
  }
}

TEST_F(DiskTest, KilledAtAnyMomentItServesNoGarbageAndKeepsWhatItAcknowledged) {
  constexpr int kRounds = 200;
  constexpr int kRoundsMax = 10 * kRounds;
  // Enough to mean something. A slow build acknowledges less a round and takes more of them.
  constexpr int64_t kAcknowledged = 500;
  const std::string path = folder.path() + "/tier";
  SplitMix64 random(20);
  int64_t acknowledged = 0;
  int64_t served = 0;
  for (int round = 0; round < kRounds || (round < kRoundsMax && acknowledged <= kAcknowledged); ++round) {
    SCOPED_TRACE(round);
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(fds[0]);
      WriteUntilKilled(path, kBudget, static_cast<uint64_t>(round), fds[1]);
    }
    close(fds[1]);
    // From the middle of opening to some dozens of records.
    std::this_thread::sleep_for(std::chrono::microseconds(random.Next() % 60'000));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int wait_status = 0;
    ASSERT_EQ(waitpid(child, &wait_status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(wait_status)) << "it ended by itself with " << WEXITSTATUS(wait_status);
    std::map<uint32_t, std::vector<uint32_t>> last;
    std::array<uint32_t, 2> line;
    while (read(fds[0], line.data(), sizeof(line)) == sizeof(line)) {
      last[line[0]].push_back(line[1]);
      ++acknowledged;
    }
    close(fds[0]);

    const auto tier = Open(kBudget);
    EXPECT_EQ(Files(".partial").size(), 0u);
    EXPECT_EQ(static_cast<int64_t>(Files(".record").size()), tier->Stats().records);
    const std::vector<TierRecord> records = tier->Inventory();
    EXPECT_EQ(static_cast<int64_t>(records.size()), tier->Stats().records) << "no head is damaged";
    for (const TierRecord& record : records) {
      const StatusOr<Got> got = GetNow(*this, *tier, record.key, record.payload_bytes);
      ASSERT_EQ(got.status().ToString(), "OK");
      uint64_t key = 0;
      while (MadeKey(key) != record.key) ASSERT_LT(++key, 8u);
      const size_t slash = got->header.find('/');
      const auto version = std::stoull(got->header.substr(slash + 1));
      ASSERT_TRUE(got->payload == MadeBytes(key * 1'000'000 + version, record.payload_bytes));
      ++served;
    }
    for (const auto& [key, versions] : last) {
      const auto found = FindNow(*this, *tier, {MadeKey(key)});
      ASSERT_TRUE(found.ok());
      ASSERT_EQ(found->size(), 1u) << "an acknowledged record is lost";
      // Two threads may have finished two versions in either order: the one there is of this round.
      EXPECT_EQ(found->front().header.substr(0, found->front().header.find('/')), std::to_string(round));
    }
  }
  EXPECT_GT(acknowledged, kAcknowledged);
  EXPECT_GT(served, kAcknowledged);
  RecordProperty("acknowledged", static_cast<int>(acknowledged));
}

TEST_F(DiskTest, OneThatHangsIsLeftAloneAndServesAgainAfterwards) {
  const auto tier = Open(kBudget);
  ASSERT_TRUE(PutMade(*this, *tier, 1, 100'000).ok());
  files.Hang(true);
  std::vector<std::byte> filled(100'000);
  for (int i = 0; i < 3; ++i) {
    Awaited<StatusOr<std::string>> get;
    ASSERT_TRUE(tier->Get(MadeKey(1), {{filled}, nullptr}, clock.Now() + 10'000'000, get.Done()).ok());
    EXPECT_EQ(get.Wait(*this, *tier).status().code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(tier->is_paused());
  const Status refused = GetMade(*this, *tier, 1, 100'000);
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr(folder.path()));
  EXPECT_EQ(PutMade(*this, *tier, 2, 100).code(), StatusCode::kUnavailable);
  files.Hang(false);
  const TimeNs give_up = clock.Now() + TimeNs{10} * 1'000'000'000;
  while (!PutMade(*this, *tier, 2, 100).ok() && clock.Now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(GetMade(*this, *tier, 1, 100'000).ToString(), "OK") << "what it held is still good";
  EXPECT_EQ(tier->Stats().pauses, 1);
}

TEST_F(DiskTest, DescribesAFolderThatIsInUse) {
  const auto tier = Open(kBudget);
  ASSERT_TRUE(PutMade(*this, *tier, 1, 1000).ok());
  ASSERT_TRUE(PutMade(*this, *tier, 2, 3'000'000).ok());
  EXPECT_TRUE(IsDiskFolder(folder.path() + "/tier", files));
  EXPECT_FALSE(IsDiskFolder(folder.path(), files));
  StatusOr<DiskDescription> seen = DescribeDiskFolder(folder.path() + "/tier", files, true);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->store_id, kStoreId);
  EXPECT_EQ(seen->records, 2);
  EXPECT_EQ(seen->payload_bytes, 3'001'000);
  EXPECT_EQ(seen->payload_bytes_max, 3'000'000);
  EXPECT_EQ(seen->file_bytes, tier->Stats().bytes);
  EXPECT_TRUE(seen->damaged.empty());
  for (const std::string& path : Files(".record")) {
    std::string bad = Slurp(path);
    if (bad.size() < 1'000'000) continue;
    bad[2'000'000] ^= 1;
    Spill(path, bad);
  }
  seen = DescribeDiskFolder(folder.path() + "/tier", files, false);
  ASSERT_TRUE(seen.ok());
  EXPECT_TRUE(seen->damaged.empty()) << "heads alone do not show it";
  seen = DescribeDiskFolder(folder.path() + "/tier", files, true);
  ASSERT_TRUE(seen.ok());
  ASSERT_EQ(seen->damaged.size(), 1u);
  EXPECT_THAT(seen->damaged[0], HasSubstr("section 1"));
}

}  // namespace
}  // namespace invar::cache
