// Mutex with the annotations clang's -Wthread-safety checks; g++ ignores them.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define INVAR_THREAD_ANNOTATION(x) __attribute__((x))  // The one macro: attributes cannot be spelt otherwise.
#else
#define INVAR_THREAD_ANNOTATION(x)
#endif
#if !defined(GUARDED_BY)  // abseil, which gRPC headers include, defines the same name with the same meaning.
#define GUARDED_BY(x) INVAR_THREAD_ANNOTATION(guarded_by(x))
#endif
#define REQUIRES_LOCK(x) INVAR_THREAD_ANNOTATION(requires_capability(x))

namespace invar {

class INVAR_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void Lock() INVAR_THREAD_ANNOTATION(acquire_capability()) { mu_.lock(); }
  void Unlock() INVAR_THREAD_ANNOTATION(release_capability()) { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class INVAR_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mu) INVAR_THREAD_ANNOTATION(acquire_capability(mu)) : mu_(mu) { mu_.Lock(); }
  ~MutexLock() INVAR_THREAD_ANNOTATION(release_capability()) { mu_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

class CondVar {
 public:
  // Waits once; may wake without reason, so callers loop on their condition. Requires: `mu` held.
  void Wait(Mutex& mu) REQUIRES_LOCK(mu) {
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // As Wait, at most `duration`. True when woken before the time was up.
  template <typename Duration>
  bool WaitFor(Mutex& mu, const Duration duration) REQUIRES_LOCK(mu) {
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    const bool woken = cv_.wait_for(lock, duration) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace invar
