// What is taken for the speed of a link.
#include "server/peers/link_meter.h"

#include <gtest/gtest.h>

namespace invar::server {
namespace {

constexpr TimeNs kLater = LinkMeter::kFreshNs;

TEST(LinkMeter, MeasuresALinkByLargeAnswersWhileNothingElseDoes) {
  LinkMeter meter;
  EXPECT_EQ(meter.padding_wanted(0), LinkMeter::kPaddingBytes);
  meter.Answered(0.021, LinkMeter::kPaddingBytes, 1);
  EXPECT_NEAR(meter.speed().bytes_per_second, 12.5e6, 0.1e6);
  EXPECT_EQ(meter.padding_wanted(2), 0);
  EXPECT_EQ(meter.padding_wanted(1 + kLater), LinkMeter::kPaddingBytes) << "the link may be another by now";
  meter.Answered(0.0021, LinkMeter::kPaddingBytes, 1 + kLater);
  EXPECT_NEAR(meter.speed().bytes_per_second, 125e6, 1e6) << "what was long ago does not count";
}

TEST(LinkMeter, TheShortestAnswerIsTheRoundTrip) {
  LinkMeter meter;
  meter.Answered(0.004, 0, 1);
  meter.Answered(0.3, 0, 1);  // The producer was in a step.
  EXPECT_NEAR(meter.speed().round_trip_seconds, 0.0044, 1e-9);
  meter.Answered(0.002, 0, 1);
  EXPECT_EQ(meter.speed().round_trip_seconds, 0.002);
}

TEST(LinkMeter, WhatWasComputedOnTheWayOnlyRaisesIt) {
  LinkMeter meter;
  meter.Came(10'000'000, 1.0, /*lay_ready=*/true, 1);
  meter.Came(10'000'000, 5.0, /*lay_ready=*/false, 1);
  EXPECT_EQ(meter.speed().bytes_per_second, 1e7);
  meter.Came(10'000'000, 0.5, /*lay_ready=*/false, 1);
  EXPECT_EQ(meter.speed().bytes_per_second, 1.5e7);
  meter.Came(10'000'000, 2.0, /*lay_ready=*/true, 1);
  EXPECT_EQ(meter.speed().bytes_per_second, 1e7) << "a link may have become slower";
  meter.Came(1'000, 1.0, /*lay_ready=*/true, 1);
  EXPECT_EQ(meter.speed().bytes_per_second, 1e7) << "too little says nothing";
}

}  // namespace
}  // namespace invar::server
