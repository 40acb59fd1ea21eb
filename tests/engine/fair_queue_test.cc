// Served tokens by tenant: what decides who goes next among equals.
#include "engine/schedule/fair_queue.h"

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

}  // namespace
}  // namespace invar::engine
