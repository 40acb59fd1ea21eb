// RunCall: the consumer's end of a run elsewhere (engine/remote_run.h): one call of VerifyPrefix while it is open, read
// by a thread of its own, written by another that also beats, cut by anybody. Locks: mu_ comes behind the run's.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/remote_run.h"
#include "engine/transfer_protocol.h"
#include "invar/v1/transfer.grpc.pb.h"

namespace invar::server {

class RunCall {
 public:
  struct Options {
    engine::TransferIdentity identity;
    std::string authorization;  // Empty: none is sent.
    std::string request_id;
    TimeNs deadline = kNever;
  };
  // Opens it. Requires: `stub` and `clock` outlive it.
  RunCall(v1::TransferService::Stub& stub, std::shared_ptr<engine::RemoteRun> run, Options options, const Clock& clock);
  // Cuts it; the run gets nothing any more.
  ~RunCall();
  RunCall(const RunCall&) = delete;
  RunCall& operator=(const RunCall&) = delete;

  // Waits for the first tokens, or for its end. False: it has ended.
  bool AwaitTokens();

  // Threads: any.
  void Cut() { context_.TryCancel(); }
  void CutIfSilent(TimeNs now, TimeNs lease) {
    if (now - heard_at_ > lease) Cut();
  }

 private:
  void Read();
  void WriteUntilOver();
  Status Take(const v1::VerifyResponse& message);

  // Set at construction.
  const std::shared_ptr<engine::RemoteRun> run_;
  const Options options_;
  const Clock& clock_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::VerifyRequest, v1::VerifyResponse>> rpc_;

  std::atomic<TimeNs> heard_at_;
  Mutex mu_;
  CondVar changed_;
  bool has_tokens_ GUARDED_BY(mu_) = false;
  bool has_draft_ GUARDED_BY(mu_) = false;
  bool is_over_ GUARDED_BY(mu_) = false;
  std::thread writer_;  // Last: they use all above.
  std::thread reader_;
};

}  // namespace invar::server
