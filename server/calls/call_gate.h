// CallGate: what all services share, and the one place where their calls are let in or refused. It asks who calls
// (Authenticator), whether requests are served at all (loading, draining), and whether there is room (OpenCalls). Every
// call of every service is counted here while it is open, so that a drain waits for all of them, and watched
// (StalledReaders), so that none stays for a client that takes nothing. A service has one reactor a call, each of them
// a ServedCall, which says how a call that is refused ends.
// Threads: any.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "server/access/auth.h"
#include "server/access/live_config.h"
#include "server/access/open_calls.h"
#include "server/access/rpc.h"
#include "server/calls/served_model.h"
#include "server/calls/stalled_readers.h"
#include "server/metrics/metrics.h"

namespace invar::server {

// What is known of a call when its reactor is made.
struct CallEntry {
  TimeNs at = 0;
  TimeNs deadline = kNever;  // The caller's or that of limits.request_timeout, whichever is earlier.
  Caller caller{};           // Nobody where it is not known, or no call is served now.
  OpenCall open;             // Counts it while it lives, and says whether it was let in.
};

class CallGate {
 public:
  // Requires: all outlive it.
  CallGate(const LiveConfig& config, const Authenticator& authenticator, Metrics& metrics, const Clock& clock);
  // The destructor requires: no call is open.

  // From now on requests are served. Requires: `model` outlives the gRPC server, but for its engine's thread.
  void Serve(ServedModel& model) { model_ = &model; }
  // From now on new calls get UNAVAILABLE.
  void BeginDrain() { draining_ = true; }
  // True when no call of any service is open any more; waits at most `timeout`.
  bool WaitIdle(const std::chrono::milliseconds timeout) { return open_calls_.WaitIdle(timeout); }

  // Judges a call and counts it as open, let in or not, until its ServedCall ends.
  // Its status: OK; UNAUTHENTICATED; UNAVAILABLE while loading or draining; those of OpenCalls::Begin.
  CallEntry Enter(const grpc::CallbackServerContext& context, Rpc rpc, const google::protobuf::Message& request);

  // Null while loading; never null for a call that was let in.
  ServedModel* model() const { return model_; }
  bool draining() const { return draining_; }

  std::shared_ptr<const config::Config> config() const { return config_.config(); }
  Metrics& metrics() { return metrics_; }
  const Clock& clock() const { return clock_; }
  const OpenCalls& open_calls() const { return open_calls_; }
  StalledReaders& stalled_readers() { return stalled_readers_; }

 private:
  // Who calls, where calls are served now.
  StatusOr<Caller> Admit(const grpc::CallbackServerContext& context, const config::Config& config) const;

  // Set at construction.
  const LiveConfig& config_;
  const Authenticator& authenticator_;
  Metrics& metrics_;
  const Clock& clock_;

  std::atomic<ServedModel*> model_ = nullptr;
  std::atomic<bool> draining_ = false;
  OpenCalls open_calls_;
  StalledReaders stalled_readers_;
};

}  // namespace invar::server
