// The reactor of a call with one answer: a ServedCall whose work is done in one go, in the metrics when it ends.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/server_callback.h>

#include "base/status.h"
#include "config/config.h"
#include "server/metrics.h"
#include "server/served_call.h"

namespace invar::server {

class UnaryCall final : public grpc::ServerUnaryReactor, public ServedCall {
 public:
  // Make it with `new`: it deletes itself when it is over. Requires: `keepers`, `metrics` outlive it; `context` lives
  // until OnDone returns.
  UnaryCall(const Keepers& keepers, Metrics& metrics, Rpc rpc, grpc::CallbackServerContext& context, Arrival arrival);

  // Does the work and ends the call with what came of it. `work()` fills `response`, which lives until OnDone, and
  // gives a Status.
  template <typename Work>
  void Run(const Work& work, const google::protobuf::Message& response, const config::Config& config) {
    Status status = Interrupted();
    if (status.ok()) status = work();
    if (status.ok()) status = open_calls_.Grows(open(), static_cast<int64_t>(response.SpaceUsedLong()), config);
    End(status);
  }
  // The last use of the call by who runs it.
  void End(const Status& status);
  void OnCancel() override { NoteCancel(); }
  void OnDone() override { Leave(); }

 private:
  OpenCalls& open_calls_;
  Metrics& metrics_;
  const Rpc rpc_;
};

}  // namespace invar::server
