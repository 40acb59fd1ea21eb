// PlanThread: renews priors beside the engine. A renewal solves a placement for each overlap kept and takes up to some
// milliseconds, which no running request should wait for; what it finds is taken over where the planner is asked next,
// on the engine thread between two steps. One thread, at low priority: it must not take a core from a forward.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.h"
#include "cache/checkpoint/planner.h"

namespace invar::cache {

class PlanThread final : public PlanExecutor {
 public:
  PlanThread();
  // Waits for the job under way; those that have not begun are dropped.
  ~PlanThread() override;
  PlanThread(const PlanThread&) = delete;
  PlanThread& operator=(const PlanThread&) = delete;

  // Threads: any. The planner has one job a class at most, and a class takes several requests to
  // have one, which cost more than the job: the queue stays short.
  void Run(std::function<void()> job) override;

 private:
  void Work();

  Mutex mu_;
  CondVar ready_;
  std::deque<std::function<void()>> jobs_ GUARDED_BY(mu_);
  bool closed_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses all of the above.
};

}  // namespace invar::cache
