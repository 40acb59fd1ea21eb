// A running daemon takes over what can change of its configuration: by Reload in this process, and by SIGHUP in a real
// one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "base/fingerprint.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/child_process.h"
#include "tests/e2e/daemon_fixture.h"

namespace invar::e2e {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;

config::ApiToken TokenOf(const std::string& tenant, const std::string& text) {
  return {.tenant = tenant, .sha256 = ToHex(Sha256(text))};
}

StatusCode Call(RunningDaemon& daemon, const v1::GenerateRequest& request, const std::string& token = {}) {
  return Collect(*daemon.NewStub(), request, std::chrono::seconds(20), token).status.error_code();
}

TEST(Reload, ChangesTokensWhileAnOpenCallGoesOn) {
  StepGate gate;
  config::Config config = TinyConfig();
  config.auth.tokens = {TokenOf("a", "old")};
  RunningDaemon daemon(config, FingerprintLoader(&gate));
  gate.Close();
  std::thread open([&] { EXPECT_EQ(Call(daemon, TokensRequest({1}, 5), "old"), StatusCode::OK); });
  gate.AwaitStanding();
  config.auth.tokens = {TokenOf("a", "new"), TokenOf("b", "other")};
  ASSERT_TRUE(daemon.daemon().Reload({.config = config}).ok());
  gate.Open();
  open.join();
  EXPECT_EQ(Call(daemon, TokensRequest({1}, 1), "old"), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Call(daemon, TokensRequest({1}, 1), "new"), StatusCode::OK);
  EXPECT_EQ(Call(daemon, TokensRequest({1}, 1), "other"), StatusCode::OK);
}

TEST(Reload, ChangesLimitsAndKeepsWhatNeedsARestart) {
  config::Config config = TinyConfig();
  RunningDaemon daemon(config, FingerprintLoader(nullptr));
  v1::GenerateRequest request = TokensRequest({1}, 1);
  request.mutable_scheduling()->set_priority(5);
  EXPECT_EQ(Call(daemon, request), StatusCode::INVALID_ARGUMENT);
  config.limits.priority_max = 5;
  config.engine.queue_max = 7;
  ASSERT_TRUE(daemon.daemon().Reload({.config = config}).ok());
  EXPECT_EQ(Call(daemon, request), StatusCode::OK);
  EXPECT_EQ(daemon.daemon().config()->limits.priority_max, 5);
  EXPECT_EQ(daemon.daemon().config()->engine.queue_max, config::Config().engine.queue_max);
}

TEST(Reload, OfAConfigurationWithAnErrorChangesNothing) {
  config::Config config = TinyConfig();
  config.auth.tokens = {TokenOf("a", "old")};
  RunningDaemon daemon(config, FingerprintLoader(nullptr));
  config.limits.priority_max = 5;
  config.auth.tokens = {TokenOf("a", "same"), TokenOf("b", "same")};
  const Status status = daemon.daemon().Reload({.config = config});
  EXPECT_EQ(status.field(), "auth.tokens");
  EXPECT_EQ(daemon.daemon().config()->limits.priority_max, 0);
  EXPECT_EQ(Call(daemon, TokensRequest({1}, 1), "old"), StatusCode::OK);
}

// What was sized by the connections of the start would overflow.
TEST(Reload, OfMoreConnectionsCarriesAsManyStreams) {
  StepGate gate;
  config::Config config = TinyConfig();
  config.server.connections_max = 1;
  config.server.concurrent_streams_max = 1;
  RunningDaemon daemon(config, FingerprintLoader(&gate));
  config.server.connections_max = 100;
  ASSERT_TRUE(daemon.daemon().Reload({.config = config}).ok());
  gate.Close();
  std::vector<std::thread> calls;
  for (int i = 0; i < 40; ++i) {
    calls.emplace_back([&] { EXPECT_EQ(Call(daemon, TokensRequest({1}, 20)), StatusCode::OK); });
  }
  daemon.AwaitCallsOpen(40);
  gate.Open();
  for (std::thread& call : calls) call.join();
  EXPECT_TRUE(daemon.BecomesIdle());
}

struct TlsSetup {
  TlsSetup() {
    config.tls.certificate = testing::TempDir() + "reload.pem";
    config.tls.key = testing::TempDir() + "reload.key";
  }
  void Write(const Certificate& identity, const std::string& key) const {
    std::ofstream(config.tls.certificate) << identity.certificate;
    std::ofstream(config.tls.key) << key;
  }
  static bool Serves(RunningDaemon& daemon, const CertificateSet& trusted) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = trusted.ca.certificate;
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("localhost");
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = v1::GenerationService::NewStub(
        grpc::CreateCustomChannel(daemon.daemon().grpc_address(), grpc::SslCredentials(options), arguments));
    return Collect(*stub, TokensRequest({1}, 1), std::chrono::seconds(20)).status.ok();
  }
  config::Config config = TinyConfig();
};

TEST(Reload, ReplacesTheCertificateOfAnOpenPort) {
  const CertificateSet first = MakeCertificates();
  const CertificateSet second = MakeCertificates();
  const TlsSetup setup;
  setup.Write(first.server, first.server.key);
  RunningDaemon daemon(setup.config, FingerprintLoader(nullptr));
  ASSERT_TRUE(TlsSetup::Serves(daemon, first));
  setup.Write(second.server, second.server.key);
  ASSERT_TRUE(daemon.daemon().Reload({.config = setup.config}).ok());
  // gRPC looks at its files once a second.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool serves = false;
  while (!serves && std::chrono::steady_clock::now() < until) serves = TlsSetup::Serves(daemon, second);
  EXPECT_TRUE(serves);
  EXPECT_FALSE(TlsSetup::Serves(daemon, first));
}

TEST(Reload, OfAKeyThatIsNotTheCertificatesKeepsTheOldPair) {
  const CertificateSet first = MakeCertificates();
  const CertificateSet second = MakeCertificates();
  const TlsSetup setup;
  setup.Write(first.server, first.server.key);
  RunningDaemon daemon(setup.config, FingerprintLoader(nullptr));
  setup.Write(second.server, first.server.key);
  EXPECT_EQ(daemon.daemon().Reload({.config = setup.config}).field(), "tls.key");
  EXPECT_TRUE(TlsSetup::Serves(daemon, first));
  config::Config plain = setup.config;
  plain.tls = {};
  EXPECT_EQ(daemon.daemon().Reload({.config = plain}).field(), "tls.certificate");
}

TEST(Configz, ShowsWhatIsInForceWithItsOriginAndNoHash) {
  config::Config config = TinyConfig();
  config.auth.tokens = {TokenOf("team-a", "secret")};
  RunningDaemon daemon(config, FingerprintLoader(nullptr));
  config.limits.priority_max = 5;
  ASSERT_TRUE(daemon.daemon().Reload({.config = config, .origins = {{"limits.priority_max", "invard.yaml:7"}}}).ok());
  const HttpAnswer answer = HttpGet(daemon.daemon().ops_address(), "/configz");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr("priority_max: 5  # invard.yaml:7"));
  EXPECT_THAT(answer.body, HasSubstr("team-a"));
  EXPECT_THAT(answer.body, testing::Not(HasSubstr(config.auth.tokens[0].sha256)));
}

TEST(Process, ReloadsItsFileOnAHangUpSignal) {
  const std::string file = testing::TempDir() + "reload.yaml";
  const std::string fixed = "server:\n  listen: 127.0.0.1:0\nops:\n  listen: 127.0.0.1:0\nlog:\n  level: error\n";
  const auto write = [&](const std::string& more) { std::ofstream(file) << fixed << more; };
  write("limits:\n  priority_max: 1\n");
  ChildProcess invard(INVARD_PATH,
                      {"--config", file, "--model", TinyModelFolder(), "--set", "engine.pack_to_file=false"});
  const std::string line = invard.ReadLine().value_or("");
  const std::string ops = line.substr(line.find("ops=") + 4);
  const auto shows = [&](const std::string& text) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < until) {
      if (HttpGet(ops, "/configz").body.find(text) != std::string::npos) return true;
    }
    return false;
  };
  ASSERT_TRUE(shows("priority_max: 1 "));
  write("limits:\n  priority_max: 2\n");
  invard.Signal(SIGHUP);
  EXPECT_TRUE(shows("priority_max: 2 "));
  write("limits:\n  priorty_max: 3\n");  // Misspelt: refused, and what runs goes on.
  invard.Signal(SIGHUP);
  EXPECT_EQ(invard.Wait(std::chrono::milliseconds(300)), -1);
  EXPECT_TRUE(shows("priority_max: 2 "));
  write("limits:\n  priority_max: 4\n");
  invard.Signal(SIGHUP);
  EXPECT_TRUE(shows("priority_max: 4 "));
  invard.Signal(SIGTERM);
  EXPECT_EQ(invard.Wait(), 0);
}

}  // namespace
}  // namespace invar::e2e
