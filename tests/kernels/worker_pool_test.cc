// The fork-join pool: every task once, whatever the threads; denormals flushed inside, untouched outside.
#include "base/worker_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>
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

TEST(WorkerPool, ForksGoOnBeyondTheEndOfTheirCounter) {
  for (const uint32_t first : {uint32_t{INT32_MAX} - 5, UINT32_MAX - 5}) {
    WorkerPool pool(3, Pinning::kNone, first);
    for (int call = 0; call < 20; ++call) {
      std::vector<std::atomic<int>> counts(10);
      pool.ParallelFor(10, [&](const int64_t i) { counts[i].fetch_add(1); });
      for (const std::atomic<int>& count : counts) ASSERT_EQ(count.load(), 1) << call << " after " << first;
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

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

// Cores each of the pool's threads may use, the caller's first.
std::vector<int> CoresOfThreads(WorkerPool& pool) {
  std::vector<int> cores(pool.threads());
  std::atomic<int> entered{0};
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> next{1};
  pool.ParallelFor(pool.threads(), [&](int64_t) {  // Nobody leaves before all are in: one task a thread.
    entered.fetch_add(1);
    while (entered.load() < pool.threads()) std::this_thread::yield();
    cores[std::this_thread::get_id() == caller ? 0 : next.fetch_add(1)] = UsableCores();
  });
  return cores;
}

TEST(WorkerPool, PinsWorkersOnlyWhereItUsesEveryCore) {
  const int all = UsableCores();
  if (all < 2) GTEST_SKIP() << "one core: no worker could be pinned apart";
  std::vector<int> pinned(all, 1);
  pinned[0] = all;
  WorkerPool whole(all, Pinning::kWorkers);
  EXPECT_EQ(CoresOfThreads(whole), pinned);
  WorkerPool more(all + 1, Pinning::kWorkers);
  EXPECT_EQ(CoresOfThreads(more), std::vector<int>(all + 1, all));
  WorkerPool free(all);
  EXPECT_EQ(CoresOfThreads(free), std::vector<int>(all, all));
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
