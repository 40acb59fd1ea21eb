// See task_queue.h. One lock: jobs take longer than handing them over.
#include "server/task_queue.h"

#include <utility>

namespace invar::server {

TaskQueue::TaskQueue(const int threads, const size_t tasks_max) : tasks_max_(tasks_max) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

TaskQueue::~TaskQueue() {
  {
    MutexLock lock(mu_);
    closed_ = true;
    ready_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool TaskQueue::Post(std::function<void()> task) {
  // Notified under the lock: once the task can run, its end may be what lets the owner of this queue go.
  MutexLock lock(mu_);
  if (tasks_.size() >= tasks_max_) return false;
  tasks_.push_back(std::move(task));
  ready_.NotifyOne();
  return true;
}

void TaskQueue::Run() {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(mu_);
      while (tasks_.empty() && !closed_) ready_.Wait(mu_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace invar::server
