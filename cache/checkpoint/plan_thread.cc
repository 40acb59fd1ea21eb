// One lock around a queue; a job runs outside of it.
#include "cache/checkpoint/plan_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

namespace invar::cache {
namespace {

// On Linux a priority is a thread's own. What it is worth is the system's business: a refusal changes nothing else.
void LowerPriority() {
  constexpr int kNice = 10;
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

}  // namespace

PlanThread::PlanThread() : thread_([this] { Work(); }) {}

PlanThread::~PlanThread() {
  {
    const MutexLock lock(mu_);
    closed_ = true;
    ready_.NotifyOne();
  }
  thread_.join();
}

void PlanThread::Run(std::function<void()> job) {
  const MutexLock lock(mu_);
  jobs_.push_back(std::move(job));
  ready_.NotifyOne();
}

void PlanThread::Work() {
  LowerPriority();
  for (;;) {
    std::function<void()> job;
    {
      const MutexLock lock(mu_);
      while (jobs_.empty() && !closed_) ready_.Wait(mu_);
      if (closed_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace invar::cache
