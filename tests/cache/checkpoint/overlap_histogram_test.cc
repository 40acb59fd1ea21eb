// The decayed histogram: what it weighs, how it forgets, how it notices change.
#include "cache/checkpoint/overlap_histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/split_mix64.h"

namespace invar::cache {
namespace {

// Histogram and clock, as a class of prefixes holds them.
struct Aging {
  DecayClock clock;
  OverlapHistogram histogram;
  void Observe(const int32_t cell) {
    Tick();
    histogram.Add(cell, clock.one());
  }
  void Tick() {
    if (clock.Tick()) histogram.Rescale();
  }
};

TEST(OverlapHistogram, KeepsCellsSortedAndCounts) {
  OverlapHistogram histogram;
  for (const int32_t cell : {5, 1, 5, 0, 9}) histogram.Add(cell, 10);
  const std::vector<CellWeight> expected = {{0, 10}, {1, 10}, {5, 20}, {9, 10}};
  EXPECT_EQ(std::vector<CellWeight>(histogram.cells().begin(), histogram.cells().end()), expected);
  EXPECT_EQ(histogram.total(), 50);
  histogram.CheckIntegrity();
}

TEST(OverlapHistogram, HalvesAnObservationInThreeHundredAndFiftyFiveTicks) {
  Aging aging;
  aging.Observe(3);
  for (int tick = 0; tick < 355; ++tick) aging.Tick();
  const double left = static_cast<double>(aging.histogram.total()) / static_cast<double>(aging.clock.one());
  EXPECT_NEAR(left, 0.5, 0.005);
}

TEST(OverlapHistogram, FollowsRealNumbersOverManyRescales) {
  SplitMix64 random(1);
  Aging aging;
  std::map<int32_t, double> expected;
  for (int i = 0; i < 50'000; ++i) {
    for (auto& [cell, weight] : expected) weight *= 512.0 / 513.0;
    const auto cell = static_cast<int32_t>(random.Next() % (i < 25'000 ? 10 : 20));
    expected[cell] += 1.0;
    aging.Observe(cell);
  }
  aging.histogram.CheckIntegrity();
  ASSERT_EQ(aging.histogram.cells().size(), expected.size());
  for (const CellWeight& cell : aging.histogram.cells()) {
    // Right after a rescale a tick adds 128 of 65,536, rounded down: up to 1 / 128 of the decay is lost there.
    const double found = static_cast<double>(cell.weight) / static_cast<double>(aging.clock.one());
    EXPECT_NEAR(found, expected[cell.cell], 0.01 * expected[cell.cell] + 0.01);
  }
}

TEST(OverlapHistogram, ForgetsCellsNobodyComesBackTo) {
  Aging aging;
  aging.Observe(7);
  for (int i = 0; i < 20'000; ++i) aging.Observe(1);
  EXPECT_EQ(aging.histogram.cells().size(), 1U);
}

TEST(OverlapHistogram, DriftIsTheShareOfTheMassThatMoved) {
  OverlapHistogram histogram;
  EXPECT_EQ(histogram.Drift(), 0);
  histogram.Add(1, 100);
  EXPECT_EQ(histogram.Drift(), 1000) << "nothing was planned yet";
  histogram.MarkPlanned();
  EXPECT_EQ(histogram.Drift(), 0);
  histogram.Add(1, 900);
  EXPECT_EQ(histogram.Drift(), 0) << "more of the same is no drift";
  histogram.Add(2, 1000);
  EXPECT_NEAR(histogram.Drift(), 500, 1);
  histogram.MarkPlanned();
  histogram.Add(0, 500);
  EXPECT_NEAR(histogram.Drift(), 200, 1);
}

}  // namespace
}  // namespace invar::cache
