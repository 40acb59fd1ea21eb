// Fixed fork-join pool for compute. Splits rows, heads and columns; the split never changes any bits.
// Workers spin briefly (<= 20 us: about one gap between two operations of a step), then sleep, so that a core is given
// up when another process wants it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace invar {

enum class Pinning {
  kNone,     // The system moves workers as it likes.
  kWorkers,  // Worker i stays on the i-th core after the first that the process may use: two never meet on one core.
};

class WorkerPool {
 public:
  // `threads` >= 1 counts the caller, so threads - 1 workers are started. The caller is never pinned. kWorkers is for
  // one pool a process, and holds only where `threads` are all the cores the process may use: with cores to spare, the
  // system knows better which of them is free. `first_fork` numbers the first call of ParallelFor: any number does,
  // since they wrap; tests begin near the end.
  explicit WorkerPool(int threads, Pinning pinning = Pinning::kNone, uint32_t first_fork = 1);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return threads_; }

  // Calls work(task) once for every task in [0, tasks), tasks handed out in order to whoever is free; returns when all
  // are done. Compute threads run with denormals flushed (the bf16 dot instruction does so too).
  // Threads: one caller at a time. `work` must not call ParallelFor.
  void ParallelFor(int64_t tasks, const std::function<void(int64_t)>& work);

 private:
  struct Shared;
  void RunTasks(uint64_t generation);
  void WorkerLoop(uint32_t seen);

  const int threads_;
  std::unique_ptr<Shared> shared_;
};

// Sets flush-to-zero and denormals-are-zero for the calling thread while it lives.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint32_t saved_;
};

}  // namespace invar
