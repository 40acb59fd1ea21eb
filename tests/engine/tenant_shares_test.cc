// Served tokens by tenant: what decides who goes next among equals.
#include "engine/schedule/tenant_shares.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace invar::engine
