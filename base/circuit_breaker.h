// CircuitBreaker: stops asking what does not answer, and asks again now and then.
//   closed --(failures_max failures in a row)--> open for a pause --(pause over)--> one call probes
//   probe succeeds: closed.  Probe fails: open for twice the pause, up to pause_max.
// Threads: its owner's lock.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace invar {

class CircuitBreaker {
 public:
  struct Options {
    int failures_max = 3;
    TimeNs pause_min = TimeNs{1} * 1'000'000'000;
    TimeNs pause_max = TimeNs{30} * 1'000'000'000;
  };
  enum class Pass { kRefused, kCall, kProbe };

  explicit CircuitBreaker(const Options& options) : options_(options), pause_(options.pause_min) {}

  // Whether a call may go out. All but kRefused oblige to call Succeeded, Failed or Abandoned once.
  Pass Admit(const TimeNs now) {
    if (!is_open()) return Pass::kCall;
    if (Refuses(now)) return Pass::kRefused;
    is_probing_ = true;
    return Pass::kProbe;
  }
  // What Admit would say, without asking for it.
  bool Refuses(const TimeNs now) const { return is_open() && (now < open_until_ || is_probing_); }

  void Succeeded() {
    failures_ = 0;
    is_probing_ = false;
    pause_ = options_.pause_min;
  }
  void Failed(const Pass pass, const TimeNs now) {
    if (is_open()) {
      // Calls that were under way when it opened change nothing.
      if (pass != Pass::kProbe) return;
      is_probing_ = false;
      pause_ = std::min(2 * pause_, options_.pause_max);
    } else if (++failures_ < options_.failures_max) {
      return;
    }
    open_until_ = now + pause_;
  }
  // Ended for a reason that says neither.
  void Abandoned(const Pass pass) {
    if (pass == Pass::kProbe) is_probing_ = false;
  }

  bool is_open() const { return failures_ >= options_.failures_max; }

 private:
  const Options options_;
  int failures_ = 0;  // In a row.
  TimeNs pause_;
  TimeNs open_until_ = 0;
  bool is_probing_ = false;
};

}  // namespace invar
