// Renewals on a thread of their own: nothing waits for them, nothing is lost or half seen, and the end comes at any
// moment. Run under ThreadSanitizer by tests/sanitize.sh.
#include "cache/checkpoint/plan_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/cache/checkpoint/brute_force.h"

namespace invar::cache {
namespace {

ClassKey KeyOf(const int i) { return {.space = 1, .trunk = i, .size_bucket = 12}; }

// The same lessons for any planner: each class is come back to around a depth of its own.
void Teach(CheckpointPlanner& planner, const int classes, const int overlaps) {
  SplitMix64 random(3);
  for (int i = 0; i < overlaps; ++i) {
    for (int c = 0; c < classes; ++c) {
      planner.ObserveEntry(KeyOf(c));
      planner.ObserveOverlap(KeyOf(c), {.length = 8192, .depth = 1000 * (c + 1) + Pick(random, 0, 50)});
    }
  }
}

std::vector<int32_t> PlanOf(CheckpointPlanner& planner, const int of_class) {
  std::vector<int32_t> positions;
  for (const Candidate& candidate : planner.Plan({.key = KeyOf(of_class), .to = 8192, .price = 100 * kWeightOne})) {
    positions.push_back(candidate.at);
  }
  return positions;
}

TEST(PlanThread, RunsJobsInTheirOrderOnItsOwnThread) {
  std::vector<int> order;
  std::thread::id on;
  std::atomic<bool> done = false;
  PlanThread executor;
  for (int i = 0; i < 100; ++i) {
    executor.Run([&, i] {
      order.push_back(i);
      on = std::this_thread::get_id();
      if (i == 99) done = true;
    });
  }
  while (!done) std::this_thread::yield();
  EXPECT_NE(on, std::this_thread::get_id());
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(PlanThread, EndsAfterTheJobUnderWay) {
  std::atomic<bool> begun = false;
  std::atomic<bool> may_end = false;
  std::atomic<bool> ended = false;
  auto executor = std::make_unique<PlanThread>();
  executor->Run([&] {
    begun = true;
    while (!may_end) std::this_thread::yield();
    ended = true;
  });
  while (!begun) std::this_thread::yield();
  std::thread closer([&] {
    executor.reset();
    EXPECT_TRUE(ended);
  });
  may_end = true;
  closer.join();
}

// One renewal each: how far the histogram had grown when it was taken does not depend on when the answer came.
TEST(PlanThread, GivesThePlansOfTheInlineExecutor) {
  constexpr int kClasses = 6;
  InlinePlanExecutor at_once;
  PlanThread thread;
  CheckpointPlanner expected({.observations_max = 128, .observations_first = 20}, MakePlacement("optimal-dp"), at_once);
  CheckpointPlanner planner({.observations_max = 128, .observations_first = 20}, MakePlacement("optimal-dp"), thread);
  Teach(expected, kClasses, 20);
  Teach(planner, kClasses, 20);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int c = 0; c < kClasses; ++c) {
    const std::vector<int32_t> wanted = PlanOf(expected, c);
    ASSERT_FALSE(wanted.empty());
    while (PlanOf(planner, c) != wanted && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    EXPECT_EQ(PlanOf(planner, c), wanted);
  }
  EXPECT_EQ(planner.counts().renewals, kClasses);
  planner.CheckIntegrity();
}

// Classes are forgotten, planners and the thread end, while jobs wait and run.
TEST(PlanThread, MayEndAtAnyMoment) {
  for (int round = 0; round < 50; ++round) {
    PlanThread thread;
    CheckpointPlanner planner({.observations_max = 8, .classes_max = 3}, MakePlacement("optimal-dp"), thread);
    Teach(planner, 5, 4 + round);
    (void)PlanOf(planner, round % 5);
    planner.CheckIntegrity();
  }
}

}  // namespace
}  // namespace invar::cache
