// What a class teaches, carried over to prefixes of other lengths.
#include "cache/checkpoint/class_prior.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/cache/checkpoint/brute_force.h"

namespace invar::cache {
namespace {

ClassPrior PriorOf(const std::vector<Overlap>& overlaps, const int64_t rate) {
  ClassPrior prior;
  prior.rate = rate * kWeightOne;
  for (const Anchor anchor : kAnchors) {
    OverlapHistogram histogram;
    for (const Overlap& overlap : overlaps) histogram.Add(CellOf(anchor, overlap), kWeightOne);
    prior.cells[static_cast<size_t>(anchor)].assign(histogram.cells().begin(), histogram.cells().end());
  }
  return prior;
}

int64_t WeightAt(const Demand& demand, const int32_t depth) {
  for (const DepthWeight& point : demand) {
    if (point.depth == depth) return point.weight;
  }
  return 0;
}

TEST(ClassPrior, ACheckpointAtACellIsNeverBeyondItsOverlap) {
  SplitMix64 random(1);
  std::map<Anchor, int> judged;
  for (int i = 0; i < 20'000; ++i) {
    const int32_t length = Pick(random, 1, 40'000);
    const Overlap overlap = {.length = length, .depth = Pick(random, 1, length + 1)};
    for (const Anchor anchor : kAnchors) {
      // Without smoothing the demand of one observation has one depth; its weight stands out.
      const Demand demand = DemandFor(PriorOf({overlap, overlap, overlap}, 100), anchor, length);
      const auto heaviest = std::max_element(demand.begin(), demand.end(),
                                             [](const auto& a, const auto& b) { return a.weight < b.weight; });
      if (demand.empty() || length < 40 * kGridTokens) continue;
      const int32_t cell = anchor == Anchor::kShare ? length / kShareCells + 1 : kGridTokens;
      const int32_t coarser = (length - 1) / (kGridTokens * kCandidatesMax) + 1;
      if (overlap.depth < 2 * cell * coarser) continue;  // May fall to depth 0, which is free.
      ASSERT_LE(heaviest->depth, overlap.depth) << AnchorName(anchor) << " length " << length;
      ASSERT_GT(heaviest->depth, overlap.depth - 2 * std::max(cell, kGridTokens * coarser))
          << AnchorName(anchor) << " length " << length << " depth " << overlap.depth;
      ++judged[anchor];
    }
  }
  for (const Anchor anchor : kAnchors) EXPECT_GT(judged[anchor], 10'000) << AnchorName(anchor);
}

TEST(ClassPrior, CarriesDepthsOverByItsAnchor) {
  // Ten segments of 6,400 left at 3,200.
  const ClassPrior prior = PriorOf(std::vector<Overlap>(10, {.length = 6400, .depth = 3200}), 1);
  const auto heaviest = [&](const Anchor anchor) {
    const Demand demand = DemandFor(prior, anchor, 12'800);
    return std::max_element(demand.begin(), demand.end(),
                            [](const auto& a, const auto& b) { return a.weight < b.weight; })
        ->depth;
  };
  EXPECT_EQ(heaviest(Anchor::kStart), 3200);
  EXPECT_EQ(heaviest(Anchor::kEnd), 12'800 - 3200);
  EXPECT_EQ(heaviest(Anchor::kShare), 6400);
}

TEST(ClassPrior, WeightsAddUpToTheExpectedRequests) {
  const ClassPrior prior = PriorOf(std::vector<Overlap>(50, {.length = 6400, .depth = 6400}), 12);
  for (const Anchor anchor : kAnchors) {
    const auto total = static_cast<double>(TotalWeight(DemandFor(prior, anchor, 6400)));
    EXPECT_NEAR(total, 12.0 * kWeightOne, 0.02 * 12.0 * kWeightOne) << AnchorName(anchor);
  }
}

TEST(ClassPrior, SmoothingIsTwoObservationsUpToTenAndOneBeyond) {
  const auto share_elsewhere = [](const int count) {
    const ClassPrior prior = PriorOf(std::vector<Overlap>(count, {.length = 6400, .depth = 3200}), 1);
    return 1.0 - static_cast<double>(WeightAt(DemandFor(prior, Anchor::kStart, 6400), 3200)) / kWeightOne;
  };
  EXPECT_NEAR(share_elsewhere(10), 2.0 / 12.0, 0.01);
  EXPECT_NEAR(share_elsewhere(11), 1.0 / 12.0, 0.01);
  EXPECT_NEAR(share_elsewhere(99), 1.0 / 100.0, 0.003);
}

TEST(ClassPrior, LongSegmentsHaveNoMoreCandidatesThanTheLimit) {
  const ClassPrior prior = PriorOf(std::vector<Overlap>(50, {.length = 6400, .depth = 3200}), 100);
  for (const int32_t length : {1, 63, 64, 100, 32'768, 32'769, 262'144, 1'000'000}) {
    for (const Anchor anchor : kAnchors) {
      const Demand demand = DemandFor(prior, anchor, length);
      CheckDemand(demand);
      EXPECT_LE(demand.size(), static_cast<size_t>(kCandidatesMax + 1));
      EXPECT_TRUE(!demand.empty() || length <= 100) << length;
      if (!demand.empty()) {
        EXPECT_LE(demand.back().depth, length);
      }
    }
  }
}

TEST(ClassPrior, TheBackTestFollowsTheAnchorThatPredicts) {
  SplitMix64 random(2);
  const auto policy = MakePlacement("optimal-dp");
  const auto follow = [&](const auto& depth_of) {
    std::vector<Overlap> past;
    std::vector<Overlap> then;
    for (int i = 0; i < 128; ++i) {
      const int32_t length = Pick(random, 4096, 8192);
      (i < 64 ? past : then).push_back({.length = length, .depth = depth_of(length)});
    }
    const ClassPrior last = PriorOf(past, 4);
    ClassPrior next = last;
    BackTest(&last, then, *policy, {.places = 2}, next);
    return next.anchor;
  };
  EXPECT_EQ(follow([](const int32_t) { return 1024; }), Anchor::kStart);
  EXPECT_EQ(follow([](const int32_t length) { return length - 256; }), Anchor::kEnd);
  EXPECT_EQ(follow([](const int32_t length) { return length / 2; }), Anchor::kShare);
}

}  // namespace
}  // namespace invar::cache
