// Fork-join without locks on the fast path: tasks are claimed from one counter that also carries the generation, so a
// worker that wakes late can never claim a task of the next call with the previous call's arguments.
#include "base/worker_pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"
#include "base/cores.h"

namespace invar {
namespace {

constexpr auto kSpin = std::chrono::microseconds(20);

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Spins until `ready`, at most kSpin. Returns whether it became ready.
template <typename Ready>
bool SpinUntil(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

// Fails without harm: the thread then goes where the system puts it.
void PinTo(std::thread& thread, const int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  pthread_setaffinity_np(thread.native_handle(), sizeof(one), &one);
}

constexpr uint64_t kTaskMask = 0xffffffffULL;

}  // namespace

struct WorkerPool::Shared {
  explicit Shared(const uint32_t forks_before) : finished(forks_before), started(forks_before) {}

  // High half: generation; low half: tasks not yet claimed. One word, so both change together.
  alignas(64) std::atomic<uint64_t> ticket{0};
  alignas(64) std::atomic<int64_t> pending{0};  // Tasks not yet finished.
  // Generations count up and wrap: at 30,000 forks a second in a day and a half.
  std::atomic<uint32_t> finished;             // Whose last task has ended; the caller sleeps on it.
  alignas(64) std::atomic<uint32_t> started;  // Last opened; workers sleep on it.
  std::atomic<const std::function<void(int64_t)>*> work{nullptr};
  std::atomic<int64_t> tasks{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
};

WorkerPool::WorkerPool(const int threads, const Pinning pinning, const uint32_t first_fork)
    : threads_(threads), shared_(std::make_unique<Shared>(first_fork - 1)) {
  Check(threads >= 1, "a pool has at least the calling thread", threads);
  const std::vector<int> cores = pinning == Pinning::kWorkers ? AllowedCores() : std::vector<int>{};
  for (int i = 1; i < threads; ++i) {
    shared_->workers.emplace_back([this, first_fork] { WorkerLoop(first_fork - 1); });
    if (static_cast<int>(cores.size()) == threads) PinTo(shared_->workers.back(), cores[i]);
  }
}

WorkerPool::~WorkerPool() {
  shared_->stop.store(true);
  shared_->started.fetch_add(1);
  shared_->started.notify_all();
  for (std::thread& worker : shared_->workers) worker.join();
}

void WorkerPool::ParallelFor(const int64_t tasks, const std::function<void(int64_t)>& work) {
  if (tasks <= 0) return;
  const FlushDenormals flush;
  if (threads_ == 1 || tasks == 1) {
    for (int64_t task = 0; task < tasks; ++task) work(task);
    return;
  }
  Check(tasks <= static_cast<int64_t>(kTaskMask), "tasks fit the claim counter", tasks);
  Shared& s = *shared_;
  const uint32_t generation = s.started.load(std::memory_order_relaxed) + 1;
  s.work.store(&work, std::memory_order_relaxed);
  s.tasks.store(tasks, std::memory_order_relaxed);
  s.pending.store(tasks, std::memory_order_relaxed);
  const uint64_t high = static_cast<uint64_t>(generation) << 32;
  s.ticket.store(high | static_cast<uint64_t>(tasks), std::memory_order_release);
  s.started.store(generation, std::memory_order_release);
  s.started.notify_all();
  RunTasks(high);
  const auto done = [&s, generation] { return s.finished.load(std::memory_order_acquire) == generation; };
  if (SpinUntil(done)) return;
  for (uint32_t seen = s.finished.load(std::memory_order_acquire); seen != generation;
       seen = s.finished.load(std::memory_order_acquire)) {
    s.finished.wait(seen, std::memory_order_acquire);
  }
}

void WorkerPool::RunTasks(const uint64_t generation) {
  Shared& s = *shared_;
  uint64_t ticket = s.ticket.load(std::memory_order_acquire);
  while ((ticket & ~kTaskMask) == generation && (ticket & kTaskMask) != 0) {
    if (!s.ticket.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    // Claimed: the call cannot end before this task does, so its arguments stand still.
    const int64_t task = s.tasks.load(std::memory_order_relaxed) - static_cast<int64_t>(ticket & kTaskMask);
    (*s.work.load(std::memory_order_relaxed))(task);
    if (s.pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      s.finished.store(static_cast<uint32_t>(generation >> 32), std::memory_order_release);
      s.finished.notify_all();
    }
    ticket = s.ticket.load(std::memory_order_acquire);
  }
}

void WorkerPool::WorkerLoop(uint32_t seen) {
  const FlushDenormals flush;
  Shared& s = *shared_;
  while (true) {
    const auto opened = [&s, seen] { return s.started.load(std::memory_order_acquire) != seen; };
    if (!SpinUntil(opened)) s.started.wait(seen, std::memory_order_acquire);
    if (s.stop.load(std::memory_order_acquire)) return;
    seen = s.started.load(std::memory_order_acquire);
    RunTasks(static_cast<uint64_t>(seen) << 32);
  }
}

FlushDenormals::FlushDenormals() : saved_(0) {
#if defined(__x86_64__)
  constexpr uint32_t kFlushToZero = 0x8000;
  constexpr uint32_t kDenormalsAreZero = 0x0040;
  saved_ = _mm_getcsr();
  _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
#endif
}

FlushDenormals::~FlushDenormals() {
#if defined(__x86_64__)
  _mm_setcsr(saved_);
#endif
}

}  // namespace invar
