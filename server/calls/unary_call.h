// The reactor of a call with one answer: a ServedCall whose work is done in one go.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/server_callback.h>

#include "base/status.h"
#include "server/calls/served_call.h"

namespace invar::server {

class UnaryCall final : public grpc::ServerUnaryReactor, public ServedCall {
 public:
  // Make it with `new`: it deletes itself when it is over. As ServedCall.
  UnaryCall(CallGate& gate, grpc::CallbackServerContext& context, CallEntry entry);

  // Does the work and ends the call with what came of it. `work()` fills `response`, which lives until OnDone, and
  // gives a Status.
  template <typename Work>
  void Run(const Work& work, google::protobuf::Message& response) {
    Status status = Interrupted();
    if (status.ok()) status = work();
    if (status.ok()) status = Hold(response);
    End(status);
  }
  // For work that ends elsewhere: instead of Run, once.
  using ServedCall::End;
  // Counts what gRPC keeps until it is taken. Errors: RESOURCE_EXHAUSTED naming the limit; `response` is empty then.
  Status Hold(google::protobuf::Message& response);

  void OnCancel() override { NoteCancel(); }
  void OnDone() override { Leave(); }

 private:
  void Refuse(const Status& status) override { End(status); }
  void FinishRpc(const grpc::Status& status) override { Finish(status); }
};

}  // namespace invar::server
