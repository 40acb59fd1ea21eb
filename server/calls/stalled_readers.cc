// See stalled_readers.h. The call looked at is held by its number, so that its end waits instead of a lock.
#include "server/calls/stalled_readers.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/check.h"

namespace invar::server {

StalledReaders::StalledReaders(const TimeNs limit) : limit_(limit), watch_([this] { Watch(); }) {}

StalledReaders::~StalledReaders() {
  {
    const MutexLock lock(mu_);
    Check(calls_.empty(), "the watch outlives what it watches", calls_.size());
    closing_ = true;
    wake_.NotifyAll();
  }
  watch_.join();
}

int64_t StalledReaders::Add(WatchedCall& call) {
  const MutexLock lock(mu_);
  calls_.emplace(++last_serial_, &call);
  return last_serial_;
}

void StalledReaders::Remove(const int64_t serial) {
  const MutexLock lock(mu_);
  // A reset may end the call on the thread that resets: it then does not touch the call again.
  while (held_ == serial && holder_ != std::this_thread::get_id()) released_.Wait(mu_);
  calls_.erase(serial);
}

void StalledReaders::Look() {
  std::vector<int64_t> serials;
  {
    const MutexLock lock(mu_);
    for (const auto& [serial, call] : calls_) serials.push_back(serial);
  }
  for (const int64_t serial : serials) {
    WatchedCall* call = nullptr;
    {
      const MutexLock lock(mu_);
      const auto found = calls_.find(serial);
      if (found == calls_.end()) continue;  // Ended while another was looked at.
      call = found->second;
      held_ = serial;
      holder_ = std::this_thread::get_id();
    }
    call->CutStalledReader(limit_);
    if (call->IsStuck(limit_ + kStatusGraceNs)) call->Reset();
    const MutexLock lock(mu_);
    held_ = 0;
    released_.NotifyAll();
  }
}

void StalledReaders::Watch() {
  const std::chrono::nanoseconds period(std::min<TimeNs>(limit_ / 4, 1'000'000'000));
  for (;;) {
    {
      const MutexLock lock(mu_);
      if (!closing_) wake_.WaitFor(mu_, period);
      if (closing_) return;
    }
    Look();
  }
}

}  // namespace invar::server
