// ServedCall: what every RPC of ours is while it is open, streamed or not: counted and watched (CallGate), with an end
// in time (the caller's deadline or limits.request_timeout), refused in one way and ended in one way. A reactor is one
// beside gRPC's own class.
//   new -> Begin --let in--> work -> End ... OnDone: Leave
//            \--refused--> Refuse -> End ... OnDone: Leave
// Threads: any.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <atomic>

#include "base/clock.h"
#include "base/status.h"
#include "server/calls/call_gate.h"

namespace invar::server {

class ServedCall : public WatchedCall {
 public:
  // The first call to it: it is watched from here on. False: it was not let in, its end is on its way, and there is
  // nothing more to do. It lives until the RPC's method has returned all the same.
  bool Begin();

  // OK while somebody waits for the answer. Errors: CANCELLED, DEADLINE_EXCEEDED.
  Status Interrupted() const;
  TimeNs deadline() const { return entry_.deadline; }
  const Caller& caller() const { return entry_.caller; }

  void CutStalledReader(TimeNs) override {}  // Unary calls write nothing before the end.
  bool IsStuck(TimeNs limit) const override;
  void Reset() override { context_.TryCancel(); }

 protected:
  // Requires: `gate` outlives it; `context` lives until OnDone returns.
  ServedCall(CallGate& gate, grpc::CallbackServerContext& context, CallEntry entry);

  // Ends a call that was not let in: leads to End.
  virtual void Refuse(const Status& status) = 0;
  // gRPC's Finish.
  virtual void FinishRpc(const grpc::Status& status) = 0;

  // Once: counts how the call ended and hands that to gRPC. The call may be gone when this returns.
  void End(const Status& status);
  // From OnCancel.
  void NoteCancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }
  // From OnDone, the last thing: deletes this.
  void Leave();

  CallGate& gate() { return gate_; }
  const CallEntry& entry() const { return entry_; }
  // `bytes` more are held until it ends. Errors: RESOURCE_EXHAUSTED naming the limit; drop them then.
  Status Grow(int64_t bytes);

 private:
  CallGate& gate_;
  grpc::CallbackServerContext& context_;
  CallEntry entry_;
  int64_t watch_serial_ = 0;
  std::atomic<bool> cancelled_ = false;
  std::atomic<TimeNs> finished_at_ = kNever;  // From here on its end depends on the reader.
};

}  // namespace invar::server
