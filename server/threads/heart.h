// Heart: one thread that beats for all calls that are open, so that both ends of each hear of the other while nothing
// else is said (engine::kTransferBeatNs). It rests where there is none.
// Threads: any. Locks: its own is held over Beat, so it comes before a call's own and that of a queue of turns.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "engine/transfer_protocol.h"

namespace invar::server {

// What is done at a beat: noted, and no more.
class Beaten {
 public:
  virtual ~Beaten() = default;
  virtual void Beat() = 0;
};

class Heart {
 public:
  Heart() : thread_([this] { Run(); }) {}
  ~Heart() {
    {
      const MutexLock lock(mu_);
      closing_ = true;
      wake_.NotifyAll();
    }
    thread_.join();
  }
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;

  // Under what it is taken out again; never 0.
  int64_t Add(std::shared_ptr<Beaten> call) {
    const MutexLock lock(mu_);
    calls_.emplace(++last_, std::move(call));
    wake_.NotifyAll();
    return last_;
  }
  void Remove(const int64_t serial) {
    const MutexLock lock(mu_);
    calls_.erase(serial);
  }

 private:
  void Run() {
    const MutexLock lock(mu_);
    while (!closing_) {
      if (calls_.empty()) {
        wake_.Wait(mu_);
        continue;
      }
      wake_.WaitFor(mu_, std::chrono::nanoseconds(engine::kTransferBeatNs));
      for (const auto& [serial, call] : calls_) call->Beat();
    }
  }

  Mutex mu_;
  CondVar wake_;
  std::map<int64_t, std::shared_ptr<Beaten>> calls_ GUARDED_BY(mu_);
  int64_t last_ GUARDED_BY(mu_) = 0;
  bool closing_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses all above.
};

}  // namespace invar::server
