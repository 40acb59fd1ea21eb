// Clock: the only source of time. Real in the daemon, simulated in tests and in `invar sim`.
#pragma once

#include <chrono>
#include <cstdint>

namespace invar {

// Nanoseconds since an arbitrary start; monotonic. A deadline of kNever does not expire.
using TimeNs = int64_t;
inline constexpr TimeNs kNever = INT64_MAX;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs Now() const = 0;  // Threads: any.
};

class RealClock final : public Clock {
 public:
  TimeNs Now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// Moves only when told to. Threads: one.
class SimulatedClock final : public Clock {
 public:
  TimeNs Now() const override { return now_; }
  void Advance(const TimeNs by) { now_ += by; }

 private:
  TimeNs now_ = 0;
};

inline constexpr double ToSeconds(const TimeNs ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace invar
