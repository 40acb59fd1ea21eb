// Tiers whose budgets are far too small, for a while: memory, a ram tier and a disk evict all the time, clients come
// and go, the daemon is stopped and killed in between. Every answer has the bits of a cold run, memory stays flat and
// the disk within its budget. A few seconds here; tests/soak/tiers.sh runs it for longer (INVAR_SOAK_SECONDS).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "base/mutex.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/e2e/invard_process.h"

namespace invar::e2e {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kDiskBudget = 24 * kMiB;  // Of some 60 MiB that all prompts leave.
constexpr uint32_t kDocuments = 24;
constexpr uint32_t kEndings = 4;  // Of each document: prompts that share two thirds.
constexpr int kClients = 3;

std::vector<int32_t> Ids(const uint32_t seed, const size_t count) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2000);
  return ids;
}
v1::GenerateRequest Prompt(const uint32_t number) {
  const uint32_t document = number / kEndings;
  std::vector<int32_t> ids = Ids(document, 300 + 20 * document);
  const std::vector<int32_t> ending = Ids(1000 + number, 150 + 10 * (number % kEndings));
  ids.insert(ids.end(), ending.begin(), ending.end());
  return TokensRequest(ids, 3);
}

// RssAnon and VmSwap: pages of mapped weights come and go with the page cache.
double PrivateMiB(const pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  double kib = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:") || line.starts_with("VmSwap:")) kib += std::stod(line.substr(line.find(':') + 1));
  }
  return kib / 1024;
}

int64_t BytesIn(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

class TierSoak : public testing::Test {
 protected:
  std::vector<std::string> Arguments() const {
    return {"--set", "engine.kv_budget=6MiB",
            "--set", "engine.running_max=4",
            "--set", "cache.tiers.ram.budget=6MiB",
            "--set", "cache.tiers.disk.path=" + folder_.path() + "/tier",
            "--set", fmt::format("cache.tiers.disk.budget={}MiB", kDiskBudget / kMiB),
            "--set", "drain.persist_timeout=30s"};
  }
  // Alone, without a cache.
  void RunCold() {
    InvardProcess invard({"--set", "cache.enabled=false"});
    for (uint32_t number = 0; number < kDocuments * kEndings; ++number) {
      const Outcome outcome = Collect(*invard.stub, Prompt(number));
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
      cold_.push_back(outcome.logit_bits);
    }
  }
  // `requests` by all clients together; documents near the last ones are likelier, as those of users are.
  void RunLife(InvardProcess& invard, const uint32_t seed, const int requests) {
    std::atomic<int> left = requests;
    std::vector<std::thread> clients;
    for (uint32_t c = 0; c < kClients; ++c) {
      clients.emplace_back([&, c] {
        std::mt19937 random(seed * kClients + c);
        const auto stub =
            v1::GenerationService::NewStub(grpc::CreateChannel(invard.address, grpc::InsecureChannelCredentials()));
        while (--left >= 0) {
          const uint32_t document = (seed + random() % (random() % 2 == 0 ? 4 : kDocuments)) % kDocuments;
          const uint32_t number = document * kEndings + random() % kEndings;
          const Outcome outcome = Collect(*stub, Prompt(number));
          const MutexLock lock(mu_);
          EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
          wrong_ += outcome.logit_bits == cold_[number] ? 0 : 1;
          ++served_by_[outcome.finished.reuse().tier()];
        }
      });
    }
    for (std::thread& client : clients) client.join();
  }

  const cache::TempFolder folder_;
  std::vector<std::vector<uint32_t>> cold_;

  Mutex mu_;
  int64_t wrong_ GUARDED_BY(mu_) = 0;
  std::map<std::string, int64_t> served_by_ GUARDED_BY(mu_);
};

TEST_F(TierSoak, AnswersAreThoseOfAColdRunMemoryStaysFlatAndTheDiskWithinItsBudget) {
  const char* const asked = std::getenv("INVAR_SOAK_SECONDS");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(asked == nullptr ? 0 : std::atoi(asked));
  RunCold();
  std::vector<double> memory;  // At the end of each life.
  std::map<std::string, double> evicted;
  int kills = 0;
  std::mt19937 random(1);
  // A stop, a kill, and one after it at least.
  for (uint32_t life = 0; life < 3 || std::chrono::steady_clock::now() < until; ++life) {
    InvardProcess invard(Arguments());
    const int requests = asked == nullptr ? 60 : 100 + static_cast<int>(random() % 400);
    RunLife(invard, life, requests / 2);
    const double half = PrivateMiB(invard.process.pid());
    RunLife(invard, 1000 + life, requests / 2);
    memory.push_back(PrivateMiB(invard.process.pid()));
    if (requests >= 200) {
      EXPECT_LE(memory.back(), half + 4) << "MiB, from half of life " << life << " to its end";
    }
    const std::string metrics = HttpGet(invard.ops, "/metrics").body;
    for (const char* const tier : {"ram", "disk"}) {
      evicted[tier] += MetricSum(metrics, "invar_tier_evictions_total", fmt::format("tier=\"{}\"", tier));
    }
    EXPECT_EQ(MetricSum(metrics, "invar_tier_damaged_total"), 0);
    evicted["pages of memory"] += MetricSum(metrics, "invar_page_evictions_total");
    if (life % 2 == 1) {
      ++kills;
      invard.process.Signal(SIGKILL);
      invard.process.Wait();
    } else {
      invard.process.Signal(SIGTERM);
      EXPECT_EQ(invard.process.Wait(std::chrono::seconds(60)), 0);
      // Beside the records: lock, store, list of drops.
      EXPECT_LE(BytesIn(folder_.path() + "/tier"), kDiskBudget + kMiB) << "life " << life;
    }
  }
  const MutexLock lock(mu_);
  EXPECT_EQ(wrong_, 0);
  EXPECT_GT(served_by_["ram"], 0);
  EXPECT_GT(served_by_["disk"], 0);
  for (const auto& [what, count] : evicted) EXPECT_GT(count, 0) << what;
  const auto [least, most] = std::minmax_element(memory.begin(), memory.end());
  if (asked == nullptr) return;
  const auto middle = memory.begin() + static_cast<ptrdiff_t>(memory.size() / 2);
  EXPECT_LE(*std::max_element(middle, memory.end()), *std::max_element(memory.begin(), middle) + 4) << "MiB";
  fmt::print("{} lives, {} of them killed; {} answers differ\n", memory.size(), kills, wrong_);
  for (const auto& [tier, count] : served_by_)
    fmt::print("answers with a prefix from {}: {}\n", tier.empty() ? "nowhere" : tier, count);
  for (const auto& [what, count] : evicted) fmt::print("evicted, {}: {:.0f}\n", what, count);
  fmt::print("private memory at the ends of lives: {:.1f} to {:.1f} MiB\n", *least, *most);
}

}  // namespace
}  // namespace invar::e2e
