// Who is let in beside whom: bytes and calls, of all and of each tenant.
#include "server/access/open_calls.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <utility>
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

OpenCalls::Claim Unary(const std::string& tenant, const int64_t bytes) {
  return {.tenant = tenant, .rpc = Rpc::kTokenize, .bytes = bytes};
}
OpenCalls::Claim Generate(const std::string& tenant) { return {.tenant = tenant, .rpc = Rpc::kGenerate, .bytes = 1}; }

// Calls that stay open, by the order in which they began, until the test ends them.
struct Rig {
  explicit Rig(config::Config with) : config(std::move(with)) {}
  // What is said of it.
  Status Begin(OpenCalls::Claim claim, const Status& so_far = OkStatus()) {
    open.push_back(calls.Begin(std::move(claim), so_far, config));
    return open.back()->status();
  }
  OpenCall& Last() { return *open.back(); }
  void End(const size_t index) { open[index].reset(); }

  using Calls = std::deque<std::optional<OpenCall>>;

  config::Config config;
  OpenCalls calls;
  Calls open;
};

TEST(OpenCalls, ATenantAloneMayTakeEverythingButNoMore) {
  Rig rig(WithTenants({"a", "a"}));
  EXPECT_TRUE(rig.Begin(Unary("a", 400)).ok());
  EXPECT_TRUE(rig.Begin(Unary("a", 600)).ok());
  EXPECT_EQ(rig.Begin(Unary("a", 1)).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(rig.calls.report().bytes, 1000);
  EXPECT_EQ(rig.calls.report().refused_bytes, 1) << "counted apart: gRPC holds it until it ends";
  EXPECT_EQ(rig.calls.report().bytes_refusals, 1);
  rig.End(1);
  EXPECT_TRUE(rig.Begin(Unary("a", 600)).ok());
  EXPECT_EQ(rig.calls.report().share_refusals, 0);
}

TEST(OpenCalls, ATenantAmongOthersTakesItsShareOfTheBytes) {
  Rig rig(WithTenants({"a", "b"}));
  EXPECT_TRUE(rig.Begin(Unary("a", 500)).ok());
  EXPECT_EQ(rig.Begin(Unary("a", 1)).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(rig.calls.report().share_refusals, 1);
  EXPECT_TRUE(rig.Begin(Unary("b", 400)).ok());
}

TEST(OpenCalls, ALargeRequestOfATenantWithoutOthersIsLetIn) {
  Rig rig(WithTenants({"a", "b"}));
  EXPECT_TRUE(rig.Begin(Unary("a", 5000)).ok());
  EXPECT_TRUE(rig.Begin(Unary("b", 5000)).ok());
  EXPECT_FALSE(rig.Begin(Unary("b", 1)).ok());
}

TEST(OpenCalls, ATenantAmongOthersTakesItsShareOfTheEngine) {
  Rig rig(WithTenants({"a", "b"}));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(rig.Begin(Generate("a")).ok());
  EXPECT_EQ(rig.Begin(Generate("a")).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(rig.Begin(Unary("a", 1)).ok()) << "other calls go on";
  EXPECT_TRUE(rig.Begin(Generate("b")).ok());
  EXPECT_EQ(rig.calls.report().calls[Rpc::kGenerate], 6);
  rig.End(0);
  EXPECT_TRUE(rig.Begin(Generate("a")).ok());
}

TEST(OpenCalls, WithoutOtherTenantsAFullEngineIsSaidByItsOwnLimit) {
  Rig rig(WithTenants({}));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(rig.Begin(Generate("")).ok());
  const Status full = rig.Begin(Generate(""));
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("raise engine.queue_max"), std::string::npos) << full.message();
  EXPECT_EQ(full.message().find("tenant"), std::string::npos) << full.message();
  EXPECT_EQ(rig.calls.report().queue_refusals, 1);
  EXPECT_EQ(rig.calls.report().share_refusals, 0);
}

// Requests of a megabyte, as many as they like, of callers without a token and of one beyond its share.
TEST(OpenCalls, WhoIsNotLetInTakesNothingFromTenants) {
  Rig rig(WithTenants({"a", "b"}));
  rig.config.limits.refused_request_bytes_max = 3000;
  const Status no_token(StatusCode::kUnauthenticated, "no token");
  EXPECT_TRUE(rig.Begin(Unary("a", 10)).ok());
  EXPECT_TRUE(rig.Begin(Unary("b", 10)).ok());
  Rig::Calls strangers;
  int resets = 0;
  for (int i = 0; i < 5; ++i) {
    const OpenCall& stranger = *strangers.emplace_back(rig.calls.Begin(Unary("", 900), no_token, rig.config));
    EXPECT_EQ(stranger.status().code(), StatusCode::kUnauthenticated);
    resets += stranger.must_reset() ? 1 : 0;
  }
  EXPECT_EQ(resets, 2) << "three of 900 bytes fit in 3000";
  EXPECT_EQ(rig.calls.report().resets, 2);
  EXPECT_EQ(rig.Begin(Unary("a", 600)).code(), StatusCode::kResourceExhausted) << "more than its share";
  EXPECT_TRUE(rig.Begin(Unary("a", 400)).ok());
  EXPECT_TRUE(rig.Begin(Unary("b", 400)).ok());
  EXPECT_EQ(rig.calls.report().bytes, 820);
  strangers.clear();
  EXPECT_EQ(rig.calls.report().refused_bytes, 600);
  EXPECT_FALSE(rig.Begin(Unary("", 5000), no_token).ok());
  EXPECT_TRUE(rig.Last().must_reset());
}

TEST(OpenCalls, OneRefusedCallAloneHasItsStatusHoweverLarge) {
  Rig rig({});
  rig.config.limits.refused_request_bytes_max = 0;
  const Status no_token(StatusCode::kUnauthenticated, "no token");
  EXPECT_FALSE(rig.Begin(Unary("", 5000), no_token).ok());
  EXPECT_FALSE(rig.Last().must_reset());
  EXPECT_FALSE(rig.Begin(Unary("", 1), no_token).ok());
  EXPECT_TRUE(rig.Last().must_reset());
}

TEST(OpenCalls, AnAnswerCountsAsItsRequestDoes) {
  Rig rig(WithTenants({"a", "b"}));
  ASSERT_TRUE(rig.Begin(Unary("a", 100)).ok());
  EXPECT_TRUE(rig.Last().Grow(5000, rig.config).ok()) << "nothing else of its tenant is open";
  rig.End(0);
  EXPECT_EQ(rig.calls.report().bytes, 0);
  ASSERT_TRUE(rig.Begin(Unary("a", 100)).ok());
  EXPECT_TRUE(rig.Last().Grow(300, rig.config).ok());
  ASSERT_TRUE(rig.Begin(Unary("b", 100)).ok());
  ASSERT_TRUE(rig.Begin(Unary("a", 100)).ok());
  const Status beyond = rig.Last().Grow(1, rig.config);
  EXPECT_EQ(beyond.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(beyond.message().find("limits.tenant_share_percent"), std::string::npos) << beyond.message();
  EXPECT_NE(beyond.message().find("500"), std::string::npos) << beyond.message();
  EXPECT_EQ(rig.calls.report().share_refusals, 1);
  rig.open.clear();
  EXPECT_EQ(rig.calls.report().bytes, 0);
  EXPECT_TRUE(rig.calls.WaitIdle(std::chrono::milliseconds(0)));
}

// As a call is handed from the gate to its reactor.
TEST(OpenCalls, ACallThatMovesIsCountedOnce) {
  Rig rig(WithTenants({}));
  ASSERT_TRUE(rig.Begin(Unary("", 3)).ok());
  {
    const OpenCall moved = std::move(rig.Last());
    rig.open.clear();
    EXPECT_EQ(rig.calls.report().bytes, 3);
  }
  EXPECT_EQ(rig.calls.report().bytes, 0);
}

TEST(OpenCalls, TheLimitsAreThoseInForceWhenACallBegins) {
  Rig rig(WithTenants({"a", "b"}));
  EXPECT_TRUE(rig.Begin(Unary("a", 400)).ok());
  rig.config.limits.tenant_share_percent = 10;
  EXPECT_FALSE(rig.Begin(Unary("a", 1)).ok());
  rig.config.limits.tenant_share_percent = 100;
  EXPECT_TRUE(rig.Begin(Unary("a", 400)).ok());
}

TEST(OpenCalls, AreIdleWhenAllHaveEnded) {
  Rig rig(WithTenants({}));
  EXPECT_TRUE(rig.calls.WaitIdle(std::chrono::milliseconds(0)));
  EXPECT_TRUE(rig.Begin(Unary("", 3)).ok());
  EXPECT_FALSE(rig.calls.WaitIdle(std::chrono::milliseconds(1)));
  rig.End(0);
  EXPECT_TRUE(rig.calls.WaitIdle(std::chrono::milliseconds(0)));
  EXPECT_EQ(rig.calls.report().bytes, 0);
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
