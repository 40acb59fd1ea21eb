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
  return {.tenant = tenant, .kind = CallKind::kUnary, .request_bytes = bytes};
}
OpenCall Generate(const std::string& tenant) {
  return {.tenant = tenant, .kind = CallKind::kGenerate, .request_bytes = 1};
}

TEST(OpenCalls, ATenantAloneMayTakeEverythingButNoMore) {
  const config::Config config = WithTenants({"a", "a"});
  OpenCalls calls;
  EXPECT_TRUE(calls.Begins(Unary("a", 400), config).ok());
  EXPECT_TRUE(calls.Begins(Unary("a", 600), config).ok());
  EXPECT_EQ(calls.Begins(Unary("a", 1), config).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(calls.request_bytes(), 1001) << "counted also where it is refused: gRPC holds it until it ends";
  calls.Ends(Unary("a", 1));
  calls.Ends(Unary("a", 600));
  EXPECT_TRUE(calls.Begins(Unary("a", 600), config).ok());
  EXPECT_EQ(calls.share_refusals(), 0);
}

TEST(OpenCalls, ATenantAmongOthersTakesItsShareOfTheBytes) {
  const config::Config config = WithTenants({"a", "b"});
  OpenCalls calls;
  EXPECT_TRUE(calls.Begins(Unary("a", 500), config).ok());
  EXPECT_EQ(calls.Begins(Unary("a", 1), config).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(calls.share_refusals(), 1);
  EXPECT_TRUE(calls.Begins(Unary("b", 400), config).ok());
}

TEST(OpenCalls, ALargeRequestOfATenantWithoutOthersIsLetIn) {
  const config::Config config = WithTenants({"a", "b"});
  OpenCalls calls;
  EXPECT_TRUE(calls.Begins(Unary("a", 5000), config).ok());
  EXPECT_TRUE(calls.Begins(Unary("b", 5000), config).ok());
  EXPECT_FALSE(calls.Begins(Unary("b", 1), config).ok());
}

TEST(OpenCalls, ATenantAmongOthersTakesItsShareOfTheEngine) {
  const config::Config config = WithTenants({"a", "b"});
  OpenCalls calls;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(calls.Begins(Generate("a"), config).ok());
  EXPECT_EQ(calls.Begins(Generate("a"), config).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(calls.Begins(Unary("a", 1), config).ok()) << "other calls go on";
  EXPECT_TRUE(calls.Begins(Generate("b"), config).ok());
  EXPECT_EQ(calls.generate_calls(), 6);
  calls.Ends(Generate("a"));
  calls.Ends(Generate("a"));
  EXPECT_TRUE(calls.Begins(Generate("a"), config).ok());
}

TEST(OpenCalls, TheLimitsAreThoseInForceWhenACallBegins) {
  config::Config config = WithTenants({"a", "b"});
  OpenCalls calls;
  EXPECT_TRUE(calls.Begins(Unary("a", 400), config).ok());
  config.limits.tenant_share_percent = 10;
  EXPECT_FALSE(calls.Begins(Unary("a", 1), config).ok());
  config.limits.tenant_share_percent = 100;
  EXPECT_TRUE(calls.Begins(Unary("a", 400), config).ok());
}

TEST(OpenCalls, AreIdleWhenAllHaveEnded) {
  const config::Config config = WithTenants({});
  OpenCalls calls;
  EXPECT_TRUE(calls.WaitIdle(std::chrono::milliseconds(0)));
  EXPECT_TRUE(calls.Begins(Unary("", 3), config).ok());
  EXPECT_FALSE(calls.WaitIdle(std::chrono::milliseconds(1)));
  calls.Ends(Unary("", 3));
  EXPECT_TRUE(calls.WaitIdle(std::chrono::milliseconds(0)));
  EXPECT_EQ(calls.request_bytes(), 0);
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
