// Ends calls whose readers take nothing: no event of theirs would. A thread looks at every call now and then: one whose
// write has been in flight for `limit` is ended with a status, and one that has not taken even that for as long again,
// and a little, is reset.
// Calls are known by serial numbers, never by address: while one is reset another may end, and a new call may get its
// memory.
// Threads: Add and Remove from any; the calls' functions run on the one that looks, without any lock of this class.
#pragma once

#include <cstdint>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace invar::server {

// One call as the watch sees it.
class WatchedCall {
 public:
  virtual ~WatchedCall() = default;
  // Ends the call with a status where one write has been in flight for `limit` or longer; otherwise nothing.
  virtual void CutStalledReader(TimeNs limit) = 0;
  // Whether its status has waited behind a write that nobody reads for `limit`: then only a reset ends it.
  virtual bool IsStuck(TimeNs limit) const = 0;
  // May lead to the end of this call and of others before it returns, on this thread or on others.
  virtual void Reset() = 0;
};

class StalledReaders {
 public:
  // What a reader that was cut off has, beside another `limit`, to take its status before it is reset.
  static constexpr TimeNs kStatusGraceNs = 2'000'000'000;

  // Looks at least four times in `limit` and once a second.
  explicit StalledReaders(TimeNs limit);
  // Requires: every call was removed.
  ~StalledReaders();
  StalledReaders(const StalledReaders&) = delete;
  StalledReaders& operator=(const StalledReaders&) = delete;

  // Requires: `call` lives until Remove returns. Gives its serial number, never 0.
  int64_t Add(WatchedCall& call);
  // Waits while another thread looks at this very call: at most one reset, which is short.
  void Remove(int64_t serial);
  // One look at every call of now; what the thread does, and tests.
  void Look();

 private:
  void Watch();

  const TimeNs limit_;
  Mutex mu_;
  CondVar released_;  // Nobody holds `held_` any more.
  CondVar wake_;
  std::map<int64_t, WatchedCall*> calls_ GUARDED_BY(mu_);
  int64_t last_serial_ GUARDED_BY(mu_) = 0;
  int64_t held_ GUARDED_BY(mu_) = 0;  // The call that is being looked at.
  std::thread::id holder_ GUARDED_BY(mu_);
  bool closing_ GUARDED_BY(mu_) = false;
  std::thread watch_;  // Last: it uses all above.
};

}  // namespace invar::server
