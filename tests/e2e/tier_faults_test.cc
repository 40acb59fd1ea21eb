// A disk tier whose calls of the system fail while the daemon serves: answers stay what they are, misses are counted,
// and once the fault is over the tier is used again. The errors are the kernel's own: a file where the folder was
// (ENOTDIR on every read and write), a limit on the size of files (EFBIG on every write).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "base/log.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/e2e/invard_process.h"

namespace invar::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;

class TierFaults : public testing::Test {
 protected:
  static v1::GenerateRequest Request(const uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<int32_t> ids(1000);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2000);
    return TokensRequest(ids, 3);
  }
  // Room for few of the prompts: what is evicted goes to the disk.
  std::vector<std::string> Arguments() const {
    return {"--set", "cache.tiers.disk.path=" + folder_.path() + "/tier",
            "--set", "engine.kv_budget=6MiB",
            "--set", "engine.running_max=2"};
  }
  // Sends prompts [first, first + count) and judges them by what they gave the first time; how many the disk helped.
  int Pass(InvardProcess& invard, const uint32_t first, const uint32_t count) {
    int from_disk = 0;
    for (uint32_t seed = first; seed < first + count; ++seed) {
      const Outcome outcome = Collect(*invard.stub, Request(seed));
      EXPECT_TRUE(outcome.status.ok()) << seed << ": " << outcome.status.error_message();
      EXPECT_EQ(outcome.logit_bits, bits_.try_emplace(seed, outcome.logit_bits).first->second) << seed;
      from_disk += outcome.finished.reuse().tier() == "disk" ? 1 : 0;
    }
    return from_disk;
  }
  // The same over and over until the disk helps: what it still writes cannot be read, and a slow one takes its time.
  bool IsHelpedIn(InvardProcess& invard, const uint32_t first, const uint32_t count) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      if (Pass(invard, first, count) > 0) return true;
    }
    return false;
  }
  static double Metric(const InvardProcess& invard, const std::string& name) {
    const std::string text = HttpGet(invard.ops, "/metrics").body;
    double sum = 0;
    for (const char* const reason : {"unavailable", "absent", "corrupt", "full"}) {
      sum += std::max(0.0, MetricSum(text, name, std::string("reason=\"") + reason + "\""));
    }
    return sum;
  }

  const cache::TempFolder folder_;
  std::map<uint32_t, std::vector<uint32_t>> bits_;
};

TEST_F(TierFaults, AFileWhereTheFolderWasCostsMissesUntilTheFolderIsBack) {
  InvardProcess invard(Arguments());
  ASSERT_TRUE(IsHelpedIn(invard, 0, 12));
  fs::rename(folder_.path() + "/tier", folder_.path() + "/away");
  std::ofstream(folder_.path() + "/tier") << "no folder";
  EXPECT_EQ(Pass(invard, 0, 12), 0) << "nothing can be read";
  Pass(invard, 100, 12);  // Nor written.
  EXPECT_GT(Metric(invard, "invar_tier_misses_total"), 0);
  EXPECT_GT(Metric(invard, "invar_tier_store_failures_total"), 0);
  fs::remove(folder_.path() + "/tier");
  fs::rename(folder_.path() + "/away", folder_.path() + "/tier");
  EXPECT_TRUE(IsHelpedIn(invard, 0, 12)) << "what was there before";
  EXPECT_TRUE(IsHelpedIn(invard, 100, 12)) << "what is written since";
}

TEST_F(TierFaults, WritesBeyondALimitAreCountedUntilItIsLifted) {
  InvardProcess invard(Arguments());
  const auto limit = [&](const rlim_t bytes) {
    const rlimit wanted{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    ASSERT_EQ(prlimit(invard.process.pid(), RLIMIT_FSIZE, &wanted, nullptr), 0);
  };
  limit(100);
  Pass(invard, 0, 12);
  EXPECT_EQ(Pass(invard, 0, 12), 0) << "nothing was written";
  EXPECT_GT(Metric(invard, "invar_tier_store_failures_total"), 0);
  limit(RLIM_INFINITY);
  EXPECT_TRUE(IsHelpedIn(invard, 0, 12));
}

TEST_F(TierFaults, TheEndOfTheProcessSaysWhatADeadDiskDidNotTake) {
  const auto last_words = [](const std::string& folder, const bool dies) {
    config::Config config = TinyConfig();
    config.cache.tiers.disk.path = folder + "/tier";
    // While requests wait; at the end a record has all the time that the drain has.
    config.cache.tiers.write_timeout = std::chrono::milliseconds(1);
    config.drain.persist_timeout = std::chrono::seconds(60);
    RunningDaemon daemon(config);
    for (uint32_t seed = 0; seed < 3; ++seed) {
      EXPECT_TRUE(Collect(*daemon.NewStub(), Request(seed)).status.ok());
    }
    if (dies) {
      fs::rename(folder + "/tier", folder + "/away");
      std::ofstream(folder + "/tier") << "no folder";
    }
    testing::internal::CaptureStderr();
    ConfigureLogs(LogFormat::kText, "info");
    daemon.daemon().Persist({});
    ConfigureLogs(LogFormat::kText, "error");
    return testing::internal::GetCapturedStderr();
  };
  const cache::TempFolder sound;
  EXPECT_THAT(last_words(sound.path(), false), ContainsRegex("6 of 6 cached prefixes are in the tiers, after"));
  EXPECT_THAT(last_words(folder_.path(), true),
              AllOf(ContainsRegex("the disk tier did not take all records: [0-9]+ unavailable"),
                    ContainsRegex("0 of 6 cached prefixes .* the rest is lost: the cache's warnings")));
}

}  // namespace
}  // namespace invar::e2e
