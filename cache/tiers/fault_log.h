// FaultLog: says once that something fails and once that it works again, however many records that concerns: of a disk
// that has gone, every request would say so. How often is in the metrics. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"

namespace invar::cache {

class FaultLog {
 public:
  // "reading from ...": what the lines begin with.
  explicit FaultLog(std::string what) : what_(std::move(what)) {}

  // Of one call. A call that nobody waits for any more says nothing of what it worked on.
  void Note(const Status& status) {
    if (status.code() == StatusCode::kCancelled || status.code() == StatusCode::kDeadlineExceeded) return;
    if (status.ok()) {
      Worked();
    } else {
      Failed(status);
    }
  }

 private:
  // A few that succeed between others that fail are no end of it.
  static constexpr int kWorkedMin = 16;

  void Failed(const Status& status) {
    {
      const MutexLock lock(mu_);
      worked_ = 0;
      if (++faults_ > 1) return;
    }
    Logger("cache")->warn("{} fails: {}; until it works again, more of this is counted only", what_, status.message());
  }
  void Worked() {
    int64_t faults = 0;
    {
      const MutexLock lock(mu_);
      if (faults_ == 0 || ++worked_ < kWorkedMin) return;
      faults = std::exchange(faults_, 0);
    }
    Logger("cache")->warn("{} works again after {} faults", what_, faults);
  }

  const std::string what_;
  Mutex mu_;
  int64_t faults_ GUARDED_BY(mu_) = 0;  // Since it last worked.
  int worked_ GUARDED_BY(mu_) = 0;      // In a row.
};

}  // namespace invar::cache
