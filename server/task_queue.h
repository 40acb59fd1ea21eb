// A few threads that run short jobs in order of arrival. Two uses: preparing requests (tokenizing, templates: too long
// for a gRPC reaction) and writing to streams (too long for the engine thread).
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace invar::server {

class TaskQueue {
 public:
  // At most `tasks_max` wait at once.
  TaskQueue(int threads, size_t tasks_max);
  // Runs what is queued, then joins.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // False where the queue is full; the task is then not taken. Threads: any.
  bool Post(std::function<void()> task);

 private:
  void Run();

  const size_t tasks_max_;
  Mutex mu_;
  CondVar ready_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mu_);
  bool closed_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // Last: they use all above.
};

}  // namespace invar::server
