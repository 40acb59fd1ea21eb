// CircuitBreaker: stops asking a server that does not answer, and asks again now and then.
//   closed --(failures_max failures in a row)--> open for a pause --(pause over)--> one call probes
//   probe succeeds: closed.  Probe fails: open for twice the pause, up to pause_max.
// Threads: its owner's lock.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace invar::cache {

class CircuitBreaker {
 public:
  struct Options {
    int failures_max = 3;
    TimeNs pause_min = TimeNs{1} * 1'000'000'000;
    TimeNs pause_max = TimeNs{30} * 1'000'000'000;
  };

  explicit CircuitBreaker(const Options& options) : options_(options), pause_(options.pause_min) {}

  // Whether a call may go out. True obliges to call Succeeded or Failed once.
  bool Admit(const TimeNs now) {
    if (failures_ < options_.failures_max) return true;
    if (now < open_until_ || is_probing_) return false;
    is_probing_ = true;
    return true;
  }
  void Succeeded() {
    failures_ = 0;
    is_probing_ = false;
    pause_ = options_.pause_min;
  }
  void Failed(const TimeNs now) {
    const bool was_open = failures_ >= options_.failures_max;
    // Calls that were under way when it opened change nothing.
    if (was_open && !is_probing_) return;
    ++failures_;
    if (failures_ < options_.failures_max) return;
    if (was_open) pause_ = std::min(2 * pause_, options_.pause_max);
    is_probing_ = false;
    open_until_ = now + pause_;
  }
  bool is_open() const { return failures_ >= options_.failures_max; }

 private:
  const Options options_;
  int failures_ = 0;  // In a row.
  TimeNs pause_;
  TimeNs open_until_ = 0;
  bool is_probing_ = false;
};

}  // namespace invar::cache
