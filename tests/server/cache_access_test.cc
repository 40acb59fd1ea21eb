// Who may see and flush what, as a table; and what browsers send for a token.
#include "server/access/cache_access.h"

#include <gtest/gtest.h>

#include "server/wire/translate_admin.h"

namespace invar::server {
namespace {

const Caller kNobodyNear{.known_by = KnownBy::kThisMachine};
const Caller kNobodyFar{.known_by = KnownBy::kNothing};
const Caller kCertified{.known_by = KnownBy::kCertificate};
const Caller kRed{.tenant = "red", .known_by = KnownBy::kToken};
const Caller kOps{.tenant = "ops", .admin = true, .known_by = KnownBy::kToken};
const Caller kDecoder{.tenant = "decode", .instance = true, .known_by = KnownBy::kToken};

struct Case {
  const char* name;
  const Caller* who;
  std::string wanted;
  bool allowed;
  std::optional<std::string> tenants;  // Of TenantsFor; nullopt: all.
  std::string tenant;                  // Of TenantOf.
};

class Access : public testing::TestWithParam<Case> {};

TEST_P(Access, IsAsTheTableSays) {
  const Case& c = GetParam();
  const StatusOr<std::optional<std::string>> tenants = TenantsFor(*c.who, c.wanted);
  const StatusOr<std::string> tenant = TenantOf(*c.who, c.wanted);
  ASSERT_EQ(tenants.ok(), c.allowed);
  ASSERT_EQ(tenant.ok(), c.allowed);
  if (c.allowed) {
    EXPECT_EQ(*tenants, c.tenants);
    EXPECT_EQ(*tenant, c.tenant);
  } else {
    EXPECT_EQ(tenants.status().code(), StatusCode::kPermissionDenied);
    EXPECT_EQ(tenant.status().code(), StatusCode::kPermissionDenied);
    EXPECT_EQ(tenants.status().reason(), tenant.status().reason());
    EXPECT_EQ(tenant.status().reason(), c.who->known_by == KnownBy::kToken ? "ADMIN_TOKEN_REQUIRED" : "CALLER_UNKNOWN");
  }
}

INSTANTIATE_TEST_SUITE_P(Callers, Access,
                         testing::Values(Case{"near_all", &kNobodyNear, "", true, std::nullopt, ""},
                                         Case{"near_one", &kNobodyNear, "red", true, "red", "red"},
                                         Case{"far_all", &kNobodyFar, "", false, {}, {}},
                                         Case{"far_one", &kNobodyFar, "red", false, {}, {}},
                                         Case{"certified_all", &kCertified, "", false, {}, {}},
                                         Case{"own_unnamed", &kRed, "", true, "red", "red"},
                                         Case{"own_named", &kRed, "red", true, "red", "red"},
                                         Case{"other", &kRed, "blue", false, {}, {}},
                                         Case{"nearly_own", &kRed, "red ", false, {}, {}},
                                         Case{"instance", &kDecoder, "blue", false, {}, {}},
                                         Case{"admin_all", &kOps, "", true, std::nullopt, "ops"},
                                         Case{"admin_one", &kOps, "red", true, "red", "red"}),
                         [](const auto& info) { return info.param.name; });

TEST(MayFetch, IsForWhoIsKnownAndForInstancesOfAllTenants) {
  for (const Caller* const who : {&kNobodyNear, &kCertified, &kOps, &kDecoder}) {
    EXPECT_TRUE(MayFetch(*who, "red").ok()) << who->tenant;
  }
  EXPECT_TRUE(MayFetch(kRed, "red").ok());
  EXPECT_EQ(MayFetch(kRed, "blue").code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(MayFetch(kRed, "").reason(), "INSTANCE_TOKEN_REQUIRED");
  EXPECT_EQ(MayFetch(kNobodyFar, "").code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(MayFetch(kNobodyFar, "").reason(), "CALLER_UNKNOWN");
}

TEST(KnownByPort, ThisMachineBeforeACertificate) {
  EXPECT_EQ(KnownByPort("127.0.0.1:50051", ""), KnownBy::kThisMachine);
  EXPECT_EQ(KnownByPort("127.0.0.1:50051", "ca.pem"), KnownBy::kThisMachine);
  EXPECT_EQ(KnownByPort("0.0.0.0:50051", "ca.pem"), KnownBy::kCertificate);
  EXPECT_EQ(KnownByPort("0.0.0.0:50051", ""), KnownBy::kNothing);
}

TEST(BearerOf, ReadsWhatBrowsersSend) {
  EXPECT_EQ(BearerOf("Bearer token"), "Bearer token");
  EXPECT_EQ(BearerOf("Basic YW55OmFkbWluLXRva2Vu"), "Bearer admin-token");
  EXPECT_EQ(BearerOf("Basic OnQ="), "Bearer t");
  EXPECT_EQ(BearerOf("basic OnQ="), "Bearer t") << "schemes have no case";
  EXPECT_EQ(BearerOf("BASIC OnQ="), "Bearer t");
  EXPECT_EQ(BearerOf("Basic YTpiOmM="), "Bearer b:c") << "a token may hold colons";
  for (const char* bad : {"Basic ", "Basic YW55", "Basic *===", "Basic ====", "Basic YW5", "Basically OnQ="}) {
    const std::string bearer = BearerOf(bad);
    EXPECT_FALSE(bearer.starts_with("Bearer ")) << bad << " became " << bearer;
  }
  EXPECT_EQ(BearerOf("Basic " + std::string(100'000, 'A')), "");
}

TEST(TranslateFlush, WantsToKnowWhoseSaltItIs) {
  v1::FlushCacheRequest request;
  EXPECT_EQ(TranslateFlush(request, std::nullopt, true)->tenant, std::nullopt);
  request.set_salt("s");
  EXPECT_EQ(TranslateFlush(request, std::nullopt, true).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TranslateFlush(request, std::nullopt, false)->tenant, "") << "without tokens there is one tenant";
  EXPECT_EQ(TranslateFlush(request, "red", true)->salt, "s");
  request.set_part(v1::FlushCacheRequest::STATES);
  EXPECT_EQ(TranslateFlush(request, "red", true)->part, cache::CachedPart::kStates);
}

// Smaller answers hold the heaviest nodes, whole paths of them, and nobody else's.
TEST(FillStatistics, KeepsToTheTenantAndTheBound) {
  engine::CacheSnapshot snapshot;
  snapshot.tree.tenants = {{"blue", {}}, {"red", {}}};
  snapshot.tree.nodes = {{.parent = -1, .tenant = 0, .end = 90, .tokens_below = 90},
                         {.parent = -1, .tenant = 1, .end = 10, .tokens_below = 60},
                         {.parent = 1, .tenant = 1, .begin = 10, .end = 20, .tokens_below = 10},
                         {.parent = 1, .tenant = 1, .begin = 10, .end = 50, .tokens_below = 40}};
  v1::GetCacheStatisticsResponse response;
  FillStatistics(snapshot, "red", 2, response);
  EXPECT_FALSE(response.has_totals());
  ASSERT_EQ(response.tenants_size(), 1);
  EXPECT_EQ(response.tenants(0).tenant(), "red");
  ASSERT_EQ(response.nodes_size(), 2);
  EXPECT_EQ(response.nodes(0).parent(), -1);
  EXPECT_EQ(response.nodes(0).children_left_out(), 1);
  EXPECT_EQ(response.nodes(1).parent(), 0);
  EXPECT_EQ(response.nodes(1).end(), 50);
  EXPECT_EQ(response.nodes(1).tenant(), 0);
}

}  // namespace
}  // namespace invar::server
