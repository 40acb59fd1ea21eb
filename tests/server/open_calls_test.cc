// Who is let in beside whom: bytes and calls, of all and of each tenant.
#include "server/open_calls.h"

#include <gtest/gtest.h>

#include <vector>

namespace invar::server {
namespace {

config::Config WithTenants(const std::vector<std::string>& tenants) {
  config::Config config;
  config.limits.open_request_bytes_max = 1000;
  config.limits.tenant_share_percent = 50;
  config.engine.queue_max = 6;
  config.engine.running_max = 2;
  for (const std::string& tenant : tenants) config.auth.tokens.push_back({.tenant = tenant, .sha256 = tenant});
  return config;
}

OpenCall Unary(const std::string& tenant, const int64_t bytes) {
  return {.tenant = tenant, .rpc = Rpc::kTokenize, .bytes = bytes};
}
OpenCall Generate(const std::string& tenant) { return {.tenant = tenant, .rpc = Rpc::kGenerate, .bytes = 1}; }

Status Begin(OpenCalls& calls, OpenCall call, const config::Config& config) {
  return calls.Begins(call, OkStatus(), config).status;
}
void End(OpenCalls& calls, OpenCall call) {
  call.let_in = true;
  calls.Ends(call);
}

TEST(OpenCalls, ATenantAloneMayTakeEverythingButNoMore) {
  const config::Config config = WithTenants({"a", "a"});
  OpenCalls calls;
  EXPECT_TRUE(Begin(calls, Unary("a", 400), config).ok());
  EXPECT_TRUE(Begin(calls, Unary("a", 600), config).ok());
  EXPECT_EQ(Begin(calls, Unary("a", 1), config).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(calls.report().bytes, 1000);
  EXPECT_EQ(calls.report().refused_bytes, 1) << "counted apart: gRPC holds it until it ends";
  EXPECT_EQ(calls.report().bytes_refusals, 1);
  End(calls, Unary("a", 600));
  EXPECT_TRUE(Begin(calls, Unary("a", 600), config).ok());
  EXPECT_EQ(calls.report().share_refusals, 0);
}

TEST(OpenCalls, ATenantAmongOthersTakesItsShareOfTheBytes) {
  const config::Config config = WithTenants({"a", "b"});
  OpenCalls calls;
  EXPECT_TRUE(Begin(calls, Unary("a", 500), config).ok());
  EXPECT_EQ(Begin(calls, Unary("a", 1), config).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(calls.report().share_refusals, 1);
  EXPECT_TRUE(Begin(calls, Unary("b", 400), config).ok());
}

TEST(OpenCalls, ALargeRequestOfATenantWithoutOthersIsLetIn) {
  const config::Config config = WithTenants({"a", "b"});
  OpenCalls calls;
  EXPECT_TRUE(Begin(calls, Unary("a", 5000), config).ok());
  EXPECT_TRUE(Begin(calls, Unary("b", 5000), config).ok());
  EXPECT_FALSE(Begin(calls, Unary("b", 1), config).ok());
}

TEST(OpenCalls, ATenantAmongOthersTakesItsShareOfTheEngine) {
  const config::Config config = WithTenants({"a", "b"});
  OpenCalls calls;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Begin(calls, Generate("a"), config).ok());
  EXPECT_EQ(Begin(calls, Generate("a"), config).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Begin(calls, Unary("a", 1), config).ok()) << "other calls go on";
  EXPECT_TRUE(Begin(calls, Generate("b"), config).ok());
  EXPECT_EQ(calls.report().calls[Rpc::kGenerate], 6);
  End(calls, Generate("a"));
  EXPECT_TRUE(Begin(calls, Generate("a"), config).ok());
}

TEST(OpenCalls, WithoutOtherTenantsAFullEngineIsSaidByItsOwnLimit) {
  const config::Config config = WithTenants({});
  OpenCalls calls;
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Begin(calls, Generate(""), config).ok());
  const Status full = Begin(calls, Generate(""), config);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("raise engine.queue_max"), std::string::npos) << full.message();
  EXPECT_EQ(full.message().find("tenant"), std::string::npos) << full.message();
  EXPECT_EQ(calls.report().queue_refusals, 1);
  EXPECT_EQ(calls.report().share_refusals, 0);
}

// Requests of a megabyte, as many as they like, of callers without a token and of one beyond its share.
TEST(OpenCalls, WhoIsNotLetInTakesNothingFromTenants) {
  config::Config config = WithTenants({"a", "b"});
  config.limits.refused_request_bytes_max = 3000;
  const Status no_token(StatusCode::kUnauthenticated, "no token");
  OpenCalls calls;
  EXPECT_TRUE(Begin(calls, Unary("a", 10), config).ok());
  EXPECT_TRUE(Begin(calls, Unary("b", 10), config).ok());
  std::vector<OpenCall> strangers(5, Unary("", 900));
  int resets = 0;
  for (OpenCall& stranger : strangers) {
    const OpenCalls::Verdict verdict = calls.Begins(stranger, no_token, config);
    EXPECT_EQ(verdict.status.code(), StatusCode::kUnauthenticated);
    resets += verdict.reset ? 1 : 0;
  }
  EXPECT_EQ(resets, 2) << "three of 900 bytes fit in 3000";
  EXPECT_EQ(calls.report().resets, 2);
  EXPECT_EQ(Begin(calls, Unary("a", 600), config).code(), StatusCode::kResourceExhausted) << "more than its share";
  EXPECT_TRUE(Begin(calls, Unary("a", 400), config).ok());
  EXPECT_TRUE(Begin(calls, Unary("b", 400), config).ok());
  EXPECT_EQ(calls.report().bytes, 820);
  for (const OpenCall& stranger : strangers) calls.Ends(stranger);
  EXPECT_EQ(calls.report().refused_bytes, 600);
  OpenCall large = Unary("", 5000);
  EXPECT_TRUE(calls.Begins(large, no_token, config).reset);
}

TEST(OpenCalls, OneRefusedCallAloneHasItsStatusHoweverLarge) {
  config::Config config;
  config.limits.refused_request_bytes_max = 0;
  OpenCalls calls;
  OpenCall large = Unary("", 5000), next = Unary("", 1);
  const Status no_token(StatusCode::kUnauthenticated, "no token");
  EXPECT_FALSE(calls.Begins(large, no_token, config).reset);
  EXPECT_TRUE(calls.Begins(next, no_token, config).reset);
}

TEST(OpenCalls, AnAnswerCountsAsItsRequestDoes) {
  const config::Config config = WithTenants({"a", "b"});
  OpenCalls calls;
  OpenCall first = Unary("a", 100), second = Unary("a", 100), other = Unary("b", 100);
  ASSERT_TRUE(calls.Begins(first, OkStatus(), config).status.ok());
  EXPECT_TRUE(calls.Grows(first, 5000, config).ok()) << "nothing else of its tenant is open";
  calls.Ends(first);
  EXPECT_EQ(calls.report().bytes, 0);
  first = Unary("a", 100);
  ASSERT_TRUE(calls.Begins(first, OkStatus(), config).status.ok());
  ASSERT_TRUE(calls.Begins(second, OkStatus(), config).status.ok());
  ASSERT_TRUE(calls.Begins(other, OkStatus(), config).status.ok());
  EXPECT_TRUE(calls.Grows(first, 300, config).ok());
  const Status beyond = calls.Grows(second, 1, config);
  EXPECT_EQ(beyond.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(beyond.message().find("limits.tenant_share_percent"), std::string::npos) << beyond.message();
  EXPECT_NE(beyond.message().find("500"), std::string::npos) << beyond.message();
  EXPECT_EQ(calls.report().share_refusals, 1);
  for (const OpenCall& call : {first, second, other}) calls.Ends(call);
  EXPECT_EQ(calls.report().bytes, 0);
  EXPECT_TRUE(calls.WaitIdle(std::chrono::milliseconds(0)));
}

TEST(OpenCalls, TheLimitsAreThoseInForceWhenACallBegins) {
  config::Config config = WithTenants({"a", "b"});
  OpenCalls calls;
  EXPECT_TRUE(Begin(calls, Unary("a", 400), config).ok());
  config.limits.tenant_share_percent = 10;
  EXPECT_FALSE(Begin(calls, Unary("a", 1), config).ok());
  config.limits.tenant_share_percent = 100;
  EXPECT_TRUE(Begin(calls, Unary("a", 400), config).ok());
}

TEST(OpenCalls, AreIdleWhenAllHaveEnded) {
  const config::Config config = WithTenants({});
  OpenCalls calls;
  EXPECT_TRUE(calls.WaitIdle(std::chrono::milliseconds(0)));
  EXPECT_TRUE(Begin(calls, Unary("", 3), config).ok());
  EXPECT_FALSE(calls.WaitIdle(std::chrono::milliseconds(1)));
  End(calls, Unary("", 3));
  EXPECT_TRUE(calls.WaitIdle(std::chrono::milliseconds(0)));
  EXPECT_EQ(calls.report().bytes, 0);
}

TEST(TenantShare, IsAtLeastOneAndDoesNotOverflow) {
  const config::Config config = WithTenants({"a", "b"});
  EXPECT_EQ(TenantShare(config, 1), 1);
  EXPECT_EQ(TenantShare(config, 7), 3);
  EXPECT_EQ(TenantShare(config, INT64_MAX), INT64_MAX / 2);
  EXPECT_EQ(TenantShare(WithTenants({"a"}), 7), 7);
}

}  // namespace
}  // namespace invar::server
