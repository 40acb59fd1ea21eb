// A gate that calls of a store stand before until a test lets them go on. Threads: any.
#pragma once

#include "base/mutex.h"

namespace invar::cache {

// Shut, it holds everyone who comes to it.
class Gate {
 public:
  void Shut() {
    const MutexLock lock(mu_);
    open_ = false;
  }
  void Open() {
    const MutexLock lock(mu_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Pass() {
    const MutexLock lock(mu_);
    ++waiting_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(mu_);
    --waiting_;
  }
  void AwaitOneStanding() {
    const MutexLock lock(mu_);
    while (waiting_ == 0) changed_.Wait(mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ GUARDED_BY(mu_) = true;
  int waiting_ GUARDED_BY(mu_) = 0;
};

}  // namespace invar::cache
