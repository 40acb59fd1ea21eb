// TierEvents: what the threads of tiers leave for the engine thread, and the copies that writes hold meanwhile.
// Threads: any, unless a function says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace invar::cache {

class TierEvents {
 public:
  // `wake`: the engine thread has something to do; may be empty. Called with the lock held: it calls nothing of this,
  // and nobody calls this with a lock that it takes.
  explicit TierEvents(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Leaves `event` for RunAll.
  void Post(std::function<void()> event);
  // The same for what can wait until somebody comes by: nobody is woken.
  void Leave(std::function<void()> event);
  // Runs what was left, in the order in which it came. Threads: engine.
  void RunAll();
  // `wake` is not called any more, and what is left never runs.
  void Close();

  // Takes room for the copy of a write. False: `bytes_max` would be exceeded.
  bool BeginWrite(int64_t bytes, int64_t bytes_max);
  void EndWrite(int64_t bytes);
  // Writes under way; some have no bytes.
  int64_t writing() const;
  // Something that AwaitEnd waits for has ended.
  void CountEnd();
  // Writes and drops that have ended so far.
  int64_t ended() const;
  // Waits until more than `ended` have. False: `deadline` or `hurry` came first.
  bool AwaitEnd(int64_t ended, const Clock& clock, TimeNs deadline, const std::stop_token& hurry) const;
  void CheckIntegrity() const;

 private:
  mutable Mutex mu_;
  mutable CondVar end_;
  const std::function<void()> wake_;
  bool closed_ GUARDED_BY(mu_) = false;
  std::vector<std::function<void()>> events_ GUARDED_BY(mu_);
  int64_t writing_ GUARDED_BY(mu_) = 0;
  int64_t writing_bytes_ GUARDED_BY(mu_) = 0;
  int64_t ended_ GUARDED_BY(mu_) = 0;
};

}  // namespace invar::cache
