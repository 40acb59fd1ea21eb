// See tier_events.h.
#include "cache/tiers/tier_events.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace invar::cache {

void TierEvents::Post(std::function<void()> event) {
  const MutexLock lock(mu_);
  if (closed_) return;
  events_.push_back(std::move(event));
  // Under the lock: once Close has returned, no wake is under way to what may be gone. So `wake` may take locks of its
  // own after this one, and must not call back.
  if (wake_) wake_();
}

void TierEvents::Leave(std::function<void()> event) {
  const MutexLock lock(mu_);
  if (!closed_) events_.push_back(std::move(event));
}

void TierEvents::RunAll() {
  std::vector<std::function<void()>> events;
  {
    const MutexLock lock(mu_);
    events.swap(events_);
  }
  for (const std::function<void()>& event : events) event();
}

void TierEvents::Close() {
  const MutexLock lock(mu_);
  closed_ = true;
  events_.clear();
}

bool TierEvents::BeginWrite(const int64_t bytes, const int64_t bytes_max) {
  const MutexLock lock(mu_);
  // One may always go alone: what is larger than the limit could never be written otherwise.
  if (writing_bytes_ > 0 && writing_bytes_ + bytes > bytes_max) return false;
  ++writing_;
  writing_bytes_ += bytes;
  return true;
}

void TierEvents::EndWrite(const int64_t bytes) {
  const MutexLock lock(mu_);
  --writing_;
  writing_bytes_ -= bytes;
  ++ended_;
  end_.NotifyAll();
}

int64_t TierEvents::writing() const {
  const MutexLock lock(mu_);
  return writing_;
}

void TierEvents::CountEnd() {
  const MutexLock lock(mu_);
  ++ended_;
  end_.NotifyAll();
}

int64_t TierEvents::ended() const {
  const MutexLock lock(mu_);
  return ended_;
}

bool TierEvents::AwaitEnd(const int64_t ended, const Clock& clock, const TimeNs deadline,
                          const std::stop_token& hurry) const {
  const std::stop_callback wake(hurry, [this] {
    const MutexLock lock(mu_);
    end_.NotifyAll();
  });
  const MutexLock lock(mu_);
  while (ended_ == ended) {
    const TimeNs left = deadline - clock.Now();
    if (left <= 0 || hurry.stop_requested()) return false;
    end_.WaitFor(mu_, std::chrono::nanoseconds(left));
  }
  return true;
}

void TierEvents::CheckIntegrity() const {
  const MutexLock lock(mu_);
  Check(writing_ >= 0 && writing_bytes_ >= 0 && (writing_ > 0 || writing_bytes_ == 0),
        "only writes under way hold bytes", writing_, writing_bytes_);
}

}  // namespace invar::cache
