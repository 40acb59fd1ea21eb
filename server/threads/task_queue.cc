// See task_queue.h. One lock: jobs take longer than handing them over.
#include "server/threads/task_queue.h"

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

TaskQueue::Posted TaskQueue::Post(std::function<void()> task, const std::string& lane, const size_t lane_max) {
  // Notified under the lock: once the task can run, its end may be what lets the owner of this queue go.
  const MutexLock lock(mu_);
  if (waiting_ >= tasks_max_) return Posted::kFull;
  const auto found = lanes_.find(lane);
  if (found == lanes_.end()) {
    lanes_[lane].push_back(std::move(task));
    turns_.push_back(lane);
  } else if (found->second.size() < lane_max) {
    found->second.push_back(std::move(task));
  } else {
    return Posted::kLaneFull;
  }
  ++waiting_;
  ready_.NotifyOne();
  return Posted::kTaken;
}

size_t TaskQueue::waiting() const {
  const MutexLock lock(mu_);
  return waiting_;
}

void TaskQueue::Run() {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(mu_);
      while (waiting_ == 0 && !closed_) ready_.Wait(mu_);
      if (waiting_ == 0) return;
      const std::string lane = std::move(turns_.front());
      turns_.pop_front();
      const auto tasks = lanes_.find(lane);
      task = std::move(tasks->second.front());
      tasks->second.pop_front();
      --waiting_;
      if (tasks->second.empty()) {
        lanes_.erase(tasks);
      } else {
        turns_.push_back(lane);
      }
    }
    task();
  }
}

}  // namespace invar::server
