// The task queue runs what it takes, refuses what it cannot hold, and ends with nothing left behind.
#include "server/task_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace invar::server {
namespace {

TEST(TaskQueue, RunsEverythingItTookBeforeItEnds) {
  std::atomic<int> ran = 0;
  {
    TaskQueue queue(2, 1000);
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(queue.Post([&] { ++ran; }));
  }
  EXPECT_EQ(ran, 500);
}

TEST(TaskQueue, RefusesBeyondItsLimit) {
  std::promise<void> release;
  std::promise<void> standing;
  TaskQueue queue(1, 2);
  ASSERT_TRUE(queue.Post([&] {
    standing.set_value();
    release.get_future().wait();
  }));
  standing.get_future().wait();  // The thread holds the first; two more may wait.
  EXPECT_TRUE(queue.Post([] {}));
  EXPECT_TRUE(queue.Post([] {}));
  EXPECT_FALSE(queue.Post([] {}));
  release.set_value();
}

TEST(TaskQueue, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    TaskQueue queue(1, 1000);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(queue.Post([&, i] { order.push_back(i); }));
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(TaskQueue, LanesTakeTurnsAndFillUpAlone) {
  std::promise<void> release, standing;
  std::string order;
  {
    TaskQueue queue(1, 100);
    ASSERT_TRUE(queue.Post([&] {
      standing.set_value();
      release.get_future().wait();
    }));
    standing.get_future().wait();
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(queue.Post([&] { order += 'a'; }, "a", 4));
    EXPECT_FALSE(queue.Post([&] { order += 'a'; }, "a", 4)) << "the lane is full";
    EXPECT_TRUE(queue.Post([&] { order += 'b'; }, "b", 4));
    EXPECT_TRUE(queue.Post([&] { order += 'c'; }, "c", 4));
    EXPECT_TRUE(queue.Post([&] { order += 'c'; }, "c", 4));
    EXPECT_EQ(queue.waiting(), 7U);
    release.set_value();
  }
  EXPECT_EQ(order, "abcacaa");
}

}  // namespace
}  // namespace invar::server
