// Who may call: API tokens before every method, TLS with and without client certificates, and what the port shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>

#include "base/fingerprint.h"
#include "server/access/auth.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/health_client.h"

namespace invar::e2e {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;

constexpr char kToken[] = "correct-horse-battery-staple";

config::Config TokenConfig() {
  config::Config config = TinyConfig();
  config.transfer.role = "prefill";
  config.auth.tokens = {{.tenant = "team-a", .sha256 = ToHex(Sha256(kToken))},
                        {.tenant = "team-b", .sha256 = ToHex(Sha256("other"))}};
  return config;
}

const std::vector<std::string>& AllMethods() {
  static const std::vector<std::string> methods = {
      "/invar.v1.GenerationService/Generate",   "/invar.v1.GenerationService/Tokenize",
      "/invar.v1.GenerationService/Detokenize", "/invar.v1.GenerationService/RenderChat",
      "/invar.v1.GenerationService/ListModels", "/invar.v1.AdminService/GetCacheStatistics",
      "/invar.v1.AdminService/FlushCache",      "/invar.v1.AdminService/ExplainPlan",
      "/invar.v1.TransferService/FetchPrefix",  "/invar.v1.TransferService/QuotePrefix",
      "/invar.v1.TransferService/VerifyPrefix", "/grpc.health.v1.Health/Check",
      "/grpc.health.v1.Health/Watch",           "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
  };
  return methods;
}

// ServerReflectionRequest { string list_services = 7; }
const std::string kListServices = std::string("\x3A\x00", 2);

TEST(Auth, EveryMethodWithoutATokenIsUnauthenticatedAndSaysNothing) {
  RunningDaemon daemon(TokenConfig());
  const auto channel = daemon.NewChannel();
  for (const std::string& method : AllMethods()) {
    const std::string request = method.find("Reflection") != std::string::npos ? kListServices : "";
    for (const std::string token : {"", "wrong", "correct-horse-battery-stapl", "correct-horse-battery-staple "}) {
      const RawOutcome outcome = CallRaw(channel, method, request, token);
      EXPECT_EQ(outcome.status.error_code(), StatusCode::UNAUTHENTICATED) << method << " with '" << token << "'";
      EXPECT_TRUE(outcome.reply.empty()) << method << " with '" << token << "'";
    }
  }
  EXPECT_EQ(daemon.stats().submitted, 0);
  const RawOutcome unknown = CallRaw(channel, "/invar.v1.GenerationService/Nothing", "");
  EXPECT_FALSE(unknown.status.ok());
}

TEST(Auth, EveryMethodWithATokenIsServed) {
  RunningDaemon daemon(TokenConfig());
  const auto channel = daemon.NewChannel();
  const auto stub = v1::GenerationService::NewStub(channel);
  EXPECT_TRUE(Collect(*stub, TokensRequest({1, 2}, 3), std::chrono::seconds(20), kToken).status.ok());
  EXPECT_TRUE(Collect(*stub, TokensRequest({1, 2}, 3), std::chrono::seconds(20), "other").status.ok());
  EXPECT_EQ(CheckHealth(channel, "", kToken), Health::kServing);
  const RawOutcome services =
      CallRaw(channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kListServices, kToken);
  EXPECT_THAT(services.reply, HasSubstr("invar.v1.GenerationService"));
}

TEST(Auth, HealthMayBeExempted) {
  config::Config config = TokenConfig();
  config.auth.health_exempt = true;
  RunningDaemon daemon(config);
  const auto channel = daemon.NewChannel();
  EXPECT_EQ(CheckHealth(channel, ""), Health::kServing);
  const auto stub = v1::GenerationService::NewStub(channel);
  EXPECT_EQ(Collect(*stub, TokensRequest({1}, 1)).status.error_code(), StatusCode::UNAUTHENTICATED);
}

TEST(Auth, TokensNameTheirTenant) {
  const config::Config config = TokenConfig();
  const server::Authenticator authenticator(config.auth);
  EXPECT_EQ(authenticator.AuthenticateHeader(std::string("Bearer ") + kToken).value().tenant, "team-a");
  EXPECT_EQ(authenticator.AuthenticateHeader("Bearer other").value().tenant, "team-b");
  EXPECT_EQ(authenticator.AuthenticateHeader("bearer other").value().tenant, "team-b") << "RFC 9110, 11.1";
  for (const std::string header : {"", "Bearer", "Bearer ", "Basic other", "other", "Bearer  other"}) {
    EXPECT_FALSE(authenticator.AuthenticateHeader(header).ok()) << header;
  }
  EXPECT_FALSE(authenticator.AuthenticateHeader("Bearer " + std::string(100'000, 'a')).ok());
  // The hash itself is not a token.
  EXPECT_FALSE(authenticator.AuthenticateHeader("Bearer " + ToHex(Sha256("other"))).ok());
}

TEST(Tenants, OneThatFillsItsShareLeavesRoomForTheOther) {
  StepGate gate;
  config::Config config = TokenConfig();
  config.engine.running_max = 1;
  config.engine.queue_max = 3;
  RunningDaemon daemon(config, FingerprintLoader(&gate));
  gate.Close();
  std::vector<std::future<Outcome>> flood;
  const auto call = [&](const std::string& token) {
    return std::async(std::launch::async, [&daemon, token] {
      return Collect(*daemon.NewStub(), TokensRequest({1}, 2), std::chrono::seconds(30), token);
    });
  };
  // Its share is half of 1 + 3.
  flood.push_back(call(kToken));
  flood.push_back(call(kToken));
  daemon.AwaitCallsOpen(2);
  EXPECT_EQ(Collect(*daemon.NewStub(), TokensRequest({1}, 2), std::chrono::seconds(30), kToken).status.error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  std::future<Outcome> other = call("other");
  daemon.AwaitCallsOpen(3);
  EXPECT_EQ(MetricSum(daemon.daemon().MetricsText(), "invar_tenant_share_refusals_total"), 1);
  gate.Open();
  EXPECT_TRUE(other.get().status.ok());
  for (std::future<Outcome>& outcome : flood) EXPECT_TRUE(outcome.get().status.ok());
}

TEST(Auth, TwoAuthorizationHeadersAreRefused) {
  RunningDaemon daemon(TokenConfig());
  const auto stub = daemon.NewStub();
  grpc::ClientContext context;
  context.AddMetadata("authorization", std::string("Bearer ") + kToken);
  context.AddMetadata("authorization", "Bearer wrong");
  v1::ListModelsResponse response;
  EXPECT_EQ(stub->ListModels(&context, {}, &response).error_code(), StatusCode::UNAUTHENTICATED);
}

std::string Write(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << content;
  return path;
}

std::shared_ptr<grpc::Channel> TlsChannel(const std::string& address, const grpc::SslCredentialsOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("localhost");
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::SslCredentials(options), arguments);
}

TEST(Tls, ServesOverTlsAndRefusesPlainText) {
  const CertificateSet set = MakeCertificates();
  config::Config config = TinyConfig();
  config.tls.certificate = Write("server.pem", set.server.certificate);
  config.tls.key = Write("server.key", set.server.key);
  RunningDaemon daemon(config);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = set.ca.certificate;
  const auto stub = v1::GenerationService::NewStub(TlsChannel(daemon.daemon().grpc_address(), options));
  const Outcome outcome = Collect(*stub, TokensRequest({1, 2}, 3));
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  const auto plain = daemon.NewStub();
  EXPECT_EQ(Collect(*plain, TokensRequest({1}, 1)).status.error_code(), StatusCode::UNAVAILABLE);
}

TEST(Tls, WantsAClientCertificateOfTheConfiguredAuthority) {
  const CertificateSet set = MakeCertificates();
  const CertificateSet stranger = MakeCertificates();
  config::Config config = TinyConfig();
  config.tls.certificate = Write("server.pem", set.server.certificate);
  config.tls.key = Write("server.key", set.server.key);
  config.tls.client_ca = Write("ca.pem", set.ca.certificate);
  RunningDaemon daemon(config);
  const auto call = [&](const Certificate* client) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = set.ca.certificate;
    if (client != nullptr) {
      options.pem_cert_chain = client->certificate;
      options.pem_private_key = client->key;
    }
    const auto stub = v1::GenerationService::NewStub(TlsChannel(daemon.daemon().grpc_address(), options));
    return Collect(*stub, TokensRequest({1, 2}, 3)).status;
  };
  EXPECT_TRUE(call(&set.client).ok());
  EXPECT_FALSE(call(nullptr).ok());
  EXPECT_FALSE(call(&stranger.client).ok());
}

TEST(Tls, ABrokenCertificateIsAClearRefusalToStart) {
  config::Config config = TinyConfig();
  config.tls.certificate = Write("broken.pem", "not a certificate");
  config.tls.key = Write("broken.key", "not a key");
  const RealClock clock;
  const auto daemon = server::Daemon::Start({.config = config}, server::LoadModelFolder, clock, [](const Status&) {});
  ASSERT_FALSE(daemon.ok());
  EXPECT_THAT(daemon.status().message(), HasSubstr("tls."));
}

TEST(Reflection, ListsTheServices) {
  RunningDaemon daemon(TinyConfig());
  const RawOutcome services =
      CallRaw(daemon.NewChannel(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kListServices);
  EXPECT_THAT(services.reply, HasSubstr("invar.v1.GenerationService"));
  EXPECT_THAT(services.reply, HasSubstr("grpc.health.v1.Health"));
}

TEST(Reflection, GivesTheFileThatDefinesTheService) {
  RunningDaemon daemon(TinyConfig(), FingerprintLoader(nullptr));
  // ServerReflectionRequest { string file_containing_symbol = 4; }
  const std::string symbol = "invar.v1.GenerationService";
  const std::string request = std::string("\x22") + static_cast<char>(symbol.size()) + symbol;
  const RawOutcome file =
      CallRaw(daemon.NewChannel(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", request);
  EXPECT_THAT(file.reply, HasSubstr("GenerateRequest"));
  EXPECT_THAT(file.reply, HasSubstr("Detokenize"));
}

}  // namespace
}  // namespace invar::e2e
