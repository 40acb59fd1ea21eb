// A few threads that run short jobs: those of one lane in order of arrival, lanes in turn. For preparing requests
// (tokenizing, templates: too long for a gRPC reaction), a lane each tenant, so that who sends many waits for itself.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
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

  enum class Posted {
    kTaken,
    kFull,      // As many tasks wait as may.
    kLaneFull,  // `lane_max` tasks of `lane` wait already.
  };
  // Threads: any.
  [[nodiscard]] Posted Post(std::function<void()> task, const std::string& lane, size_t lane_max);
  // Tasks that wait.
  size_t waiting() const;

 private:
  void Run();

  using Tasks = std::deque<std::function<void()>>;

  const size_t tasks_max_;
  mutable Mutex mu_;
  CondVar ready_;
  std::map<std::string, Tasks> lanes_ GUARDED_BY(mu_);  // None is empty.
  std::deque<std::string> turns_ GUARDED_BY(mu_);       // The lanes, next one first.
  size_t waiting_ GUARDED_BY(mu_) = 0;
  bool closed_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // Last: they use all above.
};

}  // namespace invar::server
