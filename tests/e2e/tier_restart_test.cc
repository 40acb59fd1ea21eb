// The cache across the life of the process: a stop signal lets the disk tier take what only memory holds, and the next
// process goes on with it.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/e2e/invard_process.h"

namespace invar::e2e {
namespace {

using std::chrono::milliseconds;

class TierRestart : public testing::Test {
 protected:
  TierRestart() : folder_(testing::TempDir() + "invar_restart_XXXXXX") {
    Check(mkdtemp(folder_.data()) != nullptr, "a folder for the test", folder_);
  }
  ~TierRestart() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  static std::vector<int32_t> Prompt(const uint32_t seed, const int32_t tokens) {
    std::mt19937 random(seed);
    std::vector<int32_t> ids(static_cast<size_t>(tokens));
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2000);
    return ids;
  }

  std::string folder_;
};

// More records than a second of synced writes takes.
TEST_F(TierRestart, AfterATermSignalTheNextProcessResumesFromDisk) {
  constexpr uint32_t kPrompts = 32;
  constexpr int32_t kTokens = 1500;
  const std::vector<std::string> arguments = {"--set", "cache.tiers.disk.path=" + folder_ + "/tier", "--set",
                                              "drain.persist_timeout=60s"};
  std::vector<std::vector<uint32_t>> bits;
  {
    InvardProcess invard(arguments);
    for (uint32_t i = 0; i < kPrompts; ++i) {
      const Outcome outcome = Collect(*invard.stub, TokensRequest(Prompt(i, kTokens), 3));
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
      bits.push_back(outcome.logit_bits);
    }
    invard.process.Signal(SIGTERM);
    ASSERT_EQ(invard.process.Wait(std::chrono::seconds(90)), 0);
  }
  InvardProcess invard(arguments);
  for (uint32_t i = 0; i < kPrompts; ++i) {
    const Outcome outcome = Collect(*invard.stub, TokensRequest(Prompt(i, kTokens), 3));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.finished.reuse().tier(), "disk") << i;
    EXPECT_GE(outcome.finished.usage().cached_tokens(), kTokens - 64) << i;
    EXPECT_EQ(outcome.logit_bits, bits[i]) << i;
  }
  invard.process.Signal(SIGTERM);
  EXPECT_EQ(invard.process.Wait(std::chrono::seconds(90)), 0);
}

// A remote tier that takes connections and never says a word.
class SilentServer {
 public:
  explicit SilentServer(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    Check(path.size() < sizeof(address.sun_path), "the path fits", path);
    std::memcpy(address.sun_path, path.data(), path.size());
    Check(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 && listen(fd_, 64) == 0,
          "a server listens", path);
  }
  ~SilentServer() { close(fd_); }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;

 private:
  const int fd_;
};

class SilentTier : public TierRestart {
 protected:
  SilentTier() { std::ofstream(folder_ + "/secret") << std::string(32, 's') << '\n'; }
  std::vector<std::string> Arguments(const std::string& persist_timeout) const {
    return {"--set", "cache.tiers.remote.address=unix:" + folder_ + "/socket",
            "--set", "cache.tiers.remote.hmac_secret_file=" + folder_ + "/secret",
            "--set", "cache.tiers.read_timeout=10ms",
            "--set", "drain.persist_timeout=" + persist_timeout};
  }

  SilentServer server_{folder_ + "/socket"};
};

TEST_F(SilentTier, ASecondSignalEndsTheWaitForTiers) {
  InvardProcess invard(Arguments("10m"));
  ASSERT_TRUE(Collect(*invard.stub, TokensRequest(Prompt(1, 200), 3)).status.ok());
  invard.process.Signal(SIGTERM);
  EXPECT_EQ(invard.process.Wait(milliseconds(700)), -1) << "the tier is waited for";
  invard.process.Signal(SIGTERM);
  EXPECT_EQ(invard.process.Wait(milliseconds(3000)), 0);
}

TEST_F(SilentTier, TheWaitForTiersEndsAfterItsTimeout) {
  InvardProcess invard(Arguments("200ms"));
  ASSERT_TRUE(Collect(*invard.stub, TokensRequest(Prompt(1, 200), 3)).status.ok());
  invard.process.Signal(SIGTERM);
  EXPECT_EQ(invard.process.Wait(std::chrono::seconds(5)), 0);
}

}  // namespace
}  // namespace invar::e2e
