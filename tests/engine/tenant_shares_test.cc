// Served tokens by tenant: what decides who goes next among equals.
#include "engine/schedule/tenant_shares.h"

#include <gtest/gtest.h>

#include <string>

namespace invar::engine {
namespace {

TEST(TenantShares, CountWhatWasServed) {
  TenantShares shares;
  shares.Arrive("a");
  shares.Charge("a", 10);
  EXPECT_EQ(shares.Served("a"), 10);
}

TEST(TenantShares, ANewcomerStartsAtTheLeastServedPresent) {
  TenantShares shares;
  shares.Arrive("a");
  shares.Arrive("b");
  shares.Charge("a", 100);
  shares.Charge("b", 40);
  shares.Arrive("c");
  EXPECT_EQ(shares.Served("c"), 40);
}

TEST(TenantShares, IdleTimeSavesNoCredit) {
  TenantShares shares;
  shares.Arrive("a");
  shares.Leave("a");
  EXPECT_TRUE(shares.empty());
  shares.Arrive("b");
  shares.Charge("b", 1000);
  shares.Arrive("a");
  EXPECT_EQ(shares.Served("a"), 1000);
}

TEST(TenantShares, DebtOutlivesTheRequest) {
  TenantShares shares;
  shares.Arrive("patient");
  shares.Charge("patient", 10);
  for (int i = 1; i <= 5; ++i) {
    shares.Arrive("one at a time");
    EXPECT_EQ(shares.Served("one at a time"), i == 1 ? 10 : (i - 1) * 1000 + 10);
    shares.Charge("one at a time", 1000);
    shares.Leave("one at a time");
  }
}

TEST(TenantShares, ANightAloneIsNoDebt) {
  TenantShares shares;
  shares.Arrive("night");
  shares.Charge("night", 1'000'000);
  shares.Leave("night");
  EXPECT_TRUE(shares.empty());
  shares.Arrive("morning");
  shares.Arrive("night");
  EXPECT_EQ(shares.Served("morning"), shares.Served("night"));
}

TEST(TenantShares, WhoIsAwayIsForgottenOnceItMakesNoDifference) {
  TenantShares shares;
  shares.Arrive("stays");
  shares.Charge("stays", 10);
  shares.Arrive("ahead");
  shares.Charge("ahead", 5);
  shares.Leave("ahead");
  EXPECT_EQ(shares.away(), 1u) << "it was served 15, the least of those present 10";
  shares.Charge("stays", 5);
  shares.Arrive("other");
  shares.Leave("other");
  EXPECT_EQ(shares.away(), 0u) << "both would start at 15 also if nothing were known of them";
  shares.Arrive("ahead");
  EXPECT_EQ(shares.Served("ahead"), 15);
}

TEST(TenantShares, NamesWithoutEndAreNotAllRemembered) {
  TenantShares shares;
  shares.Arrive("stuck");  // Its mark never rises.
  for (int i = 1; i <= 100'000; ++i) {
    const std::string tenant = "tenant " + std::to_string(i);
    shares.Arrive(tenant);
    shares.Charge(tenant, i);
    shares.Leave(tenant);
    ASSERT_LE(shares.away(), TenantShares::kAwayMax);
  }
  shares.Arrive("tenant 100000");
  EXPECT_EQ(shares.Served("tenant 100000"), 100'000) << "the largest debts are kept";
}

}  // namespace
}  // namespace invar::engine
