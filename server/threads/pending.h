// A value that one thread waits for and another one brings. Shared by both, since either may be gone first: the one who
// waits gives up after a while. Threads: any.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace invar::server {

template <typename T>
class Pending {
 public:
  void Set(T value) {
    const MutexLock lock(mu_);
    value_ = std::move(value);
    came_.NotifyAll();
  }
  // Empty: it did not come in time.
  std::optional<T> Wait(const std::chrono::milliseconds timeout) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    const MutexLock lock(mu_);
    while (!value_.has_value()) {
      const auto left = until - std::chrono::steady_clock::now();
      if (left <= left.zero()) break;
      came_.WaitFor(mu_, left);
    }
    return std::exchange(value_, std::nullopt);
  }

 private:
  Mutex mu_;
  CondVar came_;
  std::optional<T> value_ GUARDED_BY(mu_);
};

}  // namespace invar::server
