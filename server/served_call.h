// ServedCall: what every RPC of ours is while it is open, streamed or not: counted (OpenCalls), with an end in time
// (the caller's deadline or limits.request_timeout), and watched (StalledReaders), so that a client that takes nothing
// does not keep request and answer for ever. A reactor is one beside gRPC's own class. Threads: any.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "config/config.h"
#include "server/open_calls.h"
#include "server/stalled_readers.h"

namespace invar::server {

// What is known of a call when its reactor is made.
struct Arrival {
  TimeNs at = 0;
  TimeNs deadline = kNever;  // The caller's or that of limits.request_timeout, whichever is earlier.
  OpenCall open;
  OpenCalls::Verdict verdict;
};
// Counts the call as open, let in or not. `tenant`: whose it is, or why it may not go on.
Arrival Arrive(OpenCalls& open_calls, const Clock& clock, const config::Config& config,
               const grpc::CallbackServerContext& context, CallKind kind, const StatusOr<std::string>& tenant,
               const google::protobuf::Message& request);

class ServedCall : public WatchedCall {
 public:
  // What it is counted and watched by; outlives it.
  struct Keepers {
    OpenCalls& open_calls;
    StalledReaders& stalled_readers;
    const Clock& clock;
  };

  // OK while somebody waits for the answer. Errors: CANCELLED, DEADLINE_EXCEEDED.
  Status Interrupted() const;
  TimeNs deadline() const { return deadline_; }

  void CutStalledReader(TimeNs) override {}  // Nothing is written before the end.
  bool IsStuck(TimeNs limit) const override;
  void Reset() override { context_.TryCancel(); }

 protected:
  // Requires: `open` has begun; `context` lives until OnDone returns.
  ServedCall(const Keepers& keepers, grpc::CallbackServerContext& context, OpenCall open, TimeNs deadline);

  // From the constructor of the class that is not derived from any more: it is looked at from here on.
  void BeWatched() { watch_serial_ = keepers_.stalled_readers.Add(*this); }
  const Clock& clock() const { return keepers_.clock; }
  // From OnCancel.
  void NoteCancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }
  // Right before gRPC's Finish: from here on its end depends on the reader. Gives that moment.
  TimeNs NoteFinish();
  // From OnDone, the last thing: deletes this.
  void Leave();
  OpenCall& open() { return open_; }

 private:
  const Keepers keepers_;
  grpc::CallbackServerContext& context_;
  const TimeNs deadline_;
  OpenCall open_;
  int64_t watch_serial_ = 0;
  std::atomic<bool> cancelled_ = false;
  std::atomic<TimeNs> finished_at_ = kNever;
};

}  // namespace invar::server
