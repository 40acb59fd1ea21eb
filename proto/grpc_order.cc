// What ThreadSanitizer is told of gRPC. The distribution's gRPC and abseil were built without it: how they order their
// threads, with locks and queues of their own, is invisible, and all that went through them looked like a race
// (thousands of reports a minute). The functions here stand before those of the libraries and tell of it: what a thread
// did before it left a lock of gRPC's, or handed it work, comes before what another does after it took one, or was
// handed an event. All locks count as one, since what passes between them passes through queues without locks.
// The cost: a race between two threads is not seen where both called gRPC in between. The engine's thread, those of
// tiers and of plans, and the compute pool never do.
#include <absl/synchronization/mutex.h>
#include <dlfcn.h>
#include <grpc/grpc.h>

#include <cstdlib>

extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);

namespace {

char order;

void Before() { __tsan_release(&order); }
void After() { __tsan_acquire(&order); }

// The library's function of the caller's name.
template <typename Function>
[[gnu::noinline]] Function* Behind() {
  Dl_info caller;
  void* function = nullptr;
  if (dladdr(__builtin_return_address(0), &caller) != 0) function = dlsym(RTLD_NEXT, caller.dli_sname);
  if (function == nullptr) std::abort();
  return reinterpret_cast<Function*>(function);
}

}  // namespace

namespace absl {

void Mutex::Lock() {
  static auto* const lock = Behind<void(Mutex*)>();
  lock(this);
  After();
}

void Mutex::Unlock() {
  static auto* const unlock = Behind<void(Mutex*)>();
  Before();
  unlock(this);
}

bool Mutex::TryLock() {
  static auto* const try_lock = Behind<bool(Mutex*)>();
  const bool locked = try_lock(this);
  if (locked) After();
  return locked;
}

void CondVar::Wait(Mutex* const mu) {
  static auto* const wait = Behind<void(CondVar*, Mutex*)>();
  Before();
  wait(this, mu);
  After();
}

bool CondVar::WaitWithTimeout(Mutex* const mu, const Duration timeout) {
  static auto* const wait = Behind<bool(CondVar*, Mutex*, Duration)>();
  Before();
  const bool late = wait(this, mu, timeout);
  After();
  return late;
}

bool CondVar::WaitWithDeadline(Mutex* const mu, const Time deadline) {
  static auto* const wait = Behind<bool(CondVar*, Mutex*, Time)>();
  Before();
  const bool late = wait(this, mu, deadline);
  After();
  return late;
}

}  // namespace absl

grpc_call_error grpc_call_start_batch(grpc_call* const call, const grpc_op* const operations, const size_t count,
                                      void* const tag, void* const reserved) {
  static auto* const start = Behind<grpc_call_error(grpc_call*, const grpc_op*, size_t, void*, void*)>();
  Before();
  return start(call, operations, count, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* const queue, const gpr_timespec deadline,
                                      void* const reserved) {
  static auto* const next = Behind<grpc_event(grpc_completion_queue*, gpr_timespec, void*)>();
  const grpc_event event = next(queue, deadline, reserved);
  After();
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* const queue, void* const tag, const gpr_timespec deadline,
                                       void* const reserved) {
  static auto* const pluck = Behind<grpc_event(grpc_completion_queue*, void*, gpr_timespec, void*)>();
  const grpc_event event = pluck(queue, tag, deadline, reserved);
  After();
  return event;
}
