// What other threads leave for the engine thread, and what they see of it. One mutex guards both, so that a request is
// counted exactly once at any moment: in the inbox as waiting, or in the published numbers.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/request.h"
#include "engine/stats.h"

namespace invar::cache {
class CacheManager;
}  // namespace invar::cache

namespace invar::engine {

struct Submission {
  SequenceId id;
  Request request;
  std::shared_ptr<EventSink> sink;
  TimeNs at = 0;
};

// Something to do with the cache, or to ask of it, between two steps.
using CacheJob = std::function<void(cache::CacheManager&, TimeNs now)>;

struct Mail {
  std::vector<Submission> submissions;  // Bounded by max_queued.
  std::vector<SequenceId> cancels;      // Bounded by what RPCs are alive.
  std::vector<SequenceId> unpauses;
  std::vector<CacheJob> cache_jobs;  // Bounded by what RPCs are alive that ask of the cache.
  bool abort = false;
  bool woken = false;

  bool empty() const {
    return submissions.empty() && cancels.empty() && unpauses.empty() && cache_jobs.empty() && !abort && !woken;
  }
};

// Threads: any, except Take and Publish: engine thread.
class Inbox {
 public:
  explicit Inbox(const int32_t max_queued) : max_queued_(max_queued) {}

  StatusOr<SequenceId> Submit(Request request, std::shared_ptr<EventSink> sink, const TimeNs now) {
    const MutexLock lock(mu_);
    if (aborted_) return Unavailable("the server is shutting down; send the request to another one");
    if (published_.waiting + static_cast<int64_t>(mail_.submissions.size()) >= max_queued_) {
      return ResourceExhausted("the queue of " + std::to_string(max_queued_) +
                               " requests (engine.queue_max) is full; try again later");
    }
    const SequenceId id(++last_id_);
    mail_.submissions.push_back({id, std::move(request), std::move(sink), now});
    wake_.NotifyOne();
    return id;
  }
  void Cancel(const SequenceId id) {
    const MutexLock lock(mu_);
    mail_.cancels.push_back(id);
    wake_.NotifyOne();
  }
  void Unpause(const SequenceId id) {
    const MutexLock lock(mu_);
    mail_.unpauses.push_back(id);
    wake_.NotifyOne();
  }
  // Something outside of requests wants a step.
  void Wake() {
    const MutexLock lock(mu_);
    mail_.woken = true;
    wake_.NotifyOne();
  }
  // Errors: UNAVAILABLE (stopped): the job will never run. Otherwise it runs once.
  Status Post(CacheJob job) {
    const MutexLock lock(mu_);
    if (stopped_) return Unavailable("the engine has stopped");
    mail_.cache_jobs.push_back(std::move(job));
    wake_.NotifyOne();
    return OkStatus();
  }
  void Abort() {
    const MutexLock lock(mu_);
    aborted_ = true;
    mail_.abort = true;
    wake_.NotifyOne();
  }
  void Stop() {
    const MutexLock lock(mu_);
    stopped_ = true;
    wake_.NotifyOne();
  }
  bool stopped() {
    const MutexLock lock(mu_);
    return stopped_;
  }

  Mail Take() {
    const MutexLock lock(mu_);
    published_.submitted += static_cast<int64_t>(mail_.submissions.size());
    published_.waiting += static_cast<int64_t>(mail_.submissions.size());
    return std::exchange(mail_, {});
  }
  // Sleeps until there is mail, Stop, or `timeout` ns passed.
  void Wait(const TimeNs timeout) {
    const MutexLock lock(mu_);
    if (timeout == kNever) {
      while (mail_.empty() && !stopped_) wake_.Wait(mu_);
    } else if (mail_.empty() && !stopped_ && timeout > 0) {
      wake_.WaitFor(mu_, std::chrono::nanoseconds(timeout));
    }
  }
  void Publish(const EngineStats& stats) {
    const MutexLock lock(mu_);
    published_ = stats;
  }
  EngineStats Stats() {
    const MutexLock lock(mu_);
    EngineStats stats = published_;
    stats.submitted += static_cast<int64_t>(mail_.submissions.size());
    stats.waiting += static_cast<int64_t>(mail_.submissions.size());
    return stats;
  }

 private:
  const int32_t max_queued_;
  Mutex mu_;
  CondVar wake_;
  Mail mail_ GUARDED_BY(mu_);
  EngineStats published_ GUARDED_BY(mu_);
  int64_t last_id_ GUARDED_BY(mu_) = 0;
  bool aborted_ GUARDED_BY(mu_) = false;
  bool stopped_ GUARDED_BY(mu_) = false;
};

}  // namespace invar::engine
