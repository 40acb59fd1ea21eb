// TierGuard: leaves a tier alone that does not answer (circuit_breaker.h), so that its misses cost nothing. What
// drivers of stores have in common. Threads: its owner's lock.
//
// A call that was late is a failure of the tier; calls that run out together, as the reads of one load do, are one. An
// error that came in time is none, unless it is the error of a server (TierStore::is_server): a disk that cannot write
// may still read.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/circuit_breaker.h"
#include "base/clock.h"
#include "base/status.h"
#include "cache/tiers/tier_store.h"

namespace invar::cache {

class TierGuard {
 public:
  TierGuard(const CircuitBreaker::Options& options, const TierStore& store)
      : title_(store.title()), is_server_(store.is_server()), breaker_(options) {}

  // All but kRefused oblige to call End once.
  CircuitBreaker::Pass Admit(const TimeNs now) { return breaker_.Admit(now); }
  // Errors: UNAVAILABLE, of calls that were refused.
  Status Refusal() const { return Unavailable(title_ + " did not answer lately and is left alone for a while"); }
  bool is_paused(const TimeNs now) const { return breaker_.Refuses(now); }
  // Times it was left alone.
  int64_t pauses() const { return pauses_; }

  // A call that was admitted has ended with `status`; kRefused: nobody asked the tier after all. What is to be said of
  // it in the log, without the lock; empty: nothing.
  [[nodiscard]] std::string End(const CircuitBreaker::Pass pass, const Status& status, const TimeNs deadline,
                                const TimeNs now) {
    if (pass == CircuitBreaker::Pass::kRefused) return {};
    const bool was_open = breaker_.is_open();
    if (status.code() == StatusCode::kCancelled) {
      breaker_.Abandoned(pass);
    } else if (!IsFailure(status)) {
      breaker_.Succeeded();
    } else if (pass == CircuitBreaker::Pass::kProbe || !RanOutWithTheLast(status, deadline)) {
      breaker_.Failed(pass, now);
    }
    if (breaker_.is_open() == was_open) return {};
    if (was_open) return title_ + " answers again";
    ++pauses_;
    return fmt::format("{} is left alone for a while: {}", title_, status.message());
  }

 private:
  bool IsFailure(const Status& status) const {
    if (status.code() == StatusCode::kDeadlineExceeded) return true;
    return is_server_ && (status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kPermissionDenied);
  }
  bool RanOutWithTheLast(const Status& status, const TimeNs deadline) {
    if (status.code() != StatusCode::kDeadlineExceeded || deadline == kNever) return false;
    return std::exchange(last_late_, deadline) == deadline;
  }

  // Set at construction.
  const std::string title_;
  const bool is_server_;

  CircuitBreaker breaker_;
  TimeNs last_late_ = kNever;  // Deadline of the last call that was late.
  int64_t pauses_ = 0;
};

}  // namespace invar::cache
