// The fork-join pool: every task once, whatever the threads; denormals flushed inside, untouched outside.
#include "base/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace invar {
namespace {

TEST(WorkerPool, RunsEveryTaskOnceInManyShortCalls) {
  for (const int threads : {1, 2, 5}) {
    WorkerPool pool(threads);
    for (int64_t tasks = 0; tasks < 300; ++tasks) {
      std::vector<std::atomic<int>> counts(tasks);
      pool.ParallelFor(tasks, [&](const int64_t i) { counts[i].fetch_add(1); });
      for (int64_t i = 0; i < tasks; ++i) ASSERT_EQ(counts[i].load(), 1) << i << " of " << tasks;
    }
  }
}

TEST(WorkerPool, SumsAreVisibleToTheCaller) {
  WorkerPool pool(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> squares(7);
    pool.ParallelFor(7, [&](const int64_t i) { squares[i] = i * i + round; });
    for (int64_t i = 0; i < 7; ++i) ASSERT_EQ(squares[i], i * i + round);
  }
}

TEST(WorkerPool, FlushesDenormalsInsideOnly) {
  volatile float tiny = 1e-38F;
  WorkerPool pool(2);
  std::vector<float> inside(64, 1.0F);
  pool.ParallelFor(64, [&](const int64_t i) { inside[i] = tiny * 0.1F; });
  for (const float value : inside) EXPECT_EQ(value, 0.0F);
  EXPECT_NE(tiny * 0.1F, 0.0F);
}

}  // namespace
}  // namespace invar
