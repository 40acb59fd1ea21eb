// The task queue runs what it takes, refuses what it cannot hold, and ends with nothing left behind.
#include "server/threads/task_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

namespace invar::server {
namespace {

using Posted = TaskQueue::Posted;

// In a lane without a bound of its own.
Posted Post(TaskQueue& queue, std::function<void()> task) { return queue.Post(std::move(task), "lane", SIZE_MAX); }

TEST(TaskQueue, RunsEverythingItTookBeforeItEnds) {
  std::atomic<int> ran = 0;
  {
    TaskQueue queue(2, 1000);
    for (int i = 0; i < 500; ++i) ASSERT_EQ(Post(queue, [&] { ++ran; }), Posted::kTaken);
  }
  EXPECT_EQ(ran, 500);
}

TEST(TaskQueue, RefusesBeyondItsLimit) {
  std::promise<void> release;
  std::promise<void> standing;
  TaskQueue queue(1, 2);
  const auto hold = [&] {
    standing.set_value();
    release.get_future().wait();
  };
  ASSERT_EQ(Post(queue, hold), Posted::kTaken);
  standing.get_future().wait();  // The thread holds the first; two more may wait.
  EXPECT_EQ(Post(queue, [] {}), Posted::kTaken);
  EXPECT_EQ(Post(queue, [] {}), Posted::kTaken);
  EXPECT_EQ(Post(queue, [] {}), Posted::kFull);
  release.set_value();
}

TEST(TaskQueue, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    TaskQueue queue(1, 1000);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(Post(queue, [&, i] { order.push_back(i); }), Posted::kTaken);
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(TaskQueue, LanesTakeTurnsAndFillUpAlone) {
  std::promise<void> release, standing;
  std::string order;
  {
    TaskQueue queue(1, 100);
    const auto hold = [&] {
      standing.set_value();
      release.get_future().wait();
    };
    ASSERT_EQ(Post(queue, hold), Posted::kTaken);
    standing.get_future().wait();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(queue.Post([&] { order += 'a'; }, "a", 4), Posted::kTaken);
    EXPECT_EQ(queue.Post([&] { order += 'a'; }, "a", 4), Posted::kLaneFull);
    EXPECT_EQ(queue.Post([&] { order += 'b'; }, "b", 4), Posted::kTaken);
    EXPECT_EQ(queue.Post([&] { order += 'c'; }, "c", 4), Posted::kTaken);
    EXPECT_EQ(queue.Post([&] { order += 'c'; }, "c", 4), Posted::kTaken);
    EXPECT_EQ(queue.waiting(), 7U);
    release.set_value();
  }
  EXPECT_EQ(order, "abcacaa");
}

}  // namespace
}  // namespace invar::server
