// The reactor of a call with one answer: counted while it is open, in the metrics when it ends. Lives until OnDone.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <utility>

#include "base/status.h"
#include "server/metrics.h"
#include "server/open_calls.h"
#include "server/translate.h"

namespace invar::server {

class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  // Of `open`, which OpenCalls::Begins has counted. Make it with `new`: it deletes itself. Requires: both outlive it.
  UnaryCall(OpenCalls& calls, Metrics& metrics, const Rpc rpc, OpenCall open)
      : calls_(calls), metrics_(metrics), rpc_(rpc), open_(std::move(open)) {}

  Status Interrupted() const {
    return cancelled_ ? Status(StatusCode::kCancelled, "the caller went away") : OkStatus();
  }
  // The last use of the call by who runs it.
  void End(const Status& status) {
    metrics_.CountCall(rpc_, status.code());
    Finish(ToGrpcStatus(status));
  }
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override {
    OpenCalls& calls = calls_;
    const OpenCall open = std::move(open_);
    delete this;
    calls.Ends(open);
  }

 private:
  OpenCalls& calls_;
  Metrics& metrics_;
  const Rpc rpc_;
  OpenCall open_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace invar::server
