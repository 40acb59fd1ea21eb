// What is taken for the speed of a link.
#include "server/link_meter.h"

#include <gtest/gtest.h>

namespace invar::server {
namespace {

TEST(LinkMeter, MeasuresALinkByTheFirstLargeAnswer) {
  LinkMeter meter;
  EXPECT_EQ(meter.padding_wanted(), LinkMeter::kPaddingBytes);
  meter.Answered(0.021, LinkMeter::kPaddingBytes);
  EXPECT_NEAR(meter.speed().bytes_per_second, 12.5e6, 0.1e6);
  EXPECT_EQ(meter.padding_wanted(), 0);
}

TEST(LinkMeter, TheShortestAnswerIsTheRoundTrip) {
  LinkMeter meter;
  meter.Answered(0.004, 0);
  meter.Answered(0.3, 0);  // The producer was in a step.
  EXPECT_NEAR(meter.speed().round_trip_seconds, 0.0044, 1e-9);
  meter.Answered(0.002, 0);
  EXPECT_EQ(meter.speed().round_trip_seconds, 0.002);
}

TEST(LinkMeter, WhatWasComputedOnTheWayOnlyRaisesIt) {
  LinkMeter meter;
  meter.Came(10'000'000, 1.0, /*lay_ready=*/true);
  meter.Came(10'000'000, 5.0, /*lay_ready=*/false);
  EXPECT_EQ(meter.speed().bytes_per_second, 1e7);
  meter.Came(10'000'000, 0.5, /*lay_ready=*/false);
  EXPECT_EQ(meter.speed().bytes_per_second, 1.5e7);
  meter.Came(10'000'000, 2.0, /*lay_ready=*/true);
  EXPECT_EQ(meter.speed().bytes_per_second, 1e7) << "a link may have become slower";
  meter.Came(1'000, 1.0, /*lay_ready=*/true);
  EXPECT_EQ(meter.speed().bytes_per_second, 1e7) << "too little says nothing";
}

}  // namespace
}  // namespace invar::server
