// The producer's end of a transfer (invar.v1.TransferService), a reactor a prefix: frames go to a state machine
// (engine/prefix_sender.h), the prefix comes from the engine (engine/prefix_export.h), and one thread beats for all of
// them and ends those whose consumer is silent.
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/prefix_sender.h"
#include "engine/transfer_frames.h"
#include "invar/v1/transfer.grpc.pb.h"
#include "server/auth.h"
#include "server/live_config.h"
#include "server/metrics.h"
#include "server/served_call.h"
#include "server/served_model.h"
#include "server/transfer_counts.h"
#include "server/unary_call.h"

namespace invar::server {

class TransferService final : public v1::TransferService::CallbackService {
 public:
  // Requires: all outlive the gRPC server. The destructor requires: no call is open.
  TransferService(const LiveConfig& config, const Authenticator& authenticator, Metrics& metrics,
                  const ServedCall::Keepers& keepers);
  ~TransferService() override;

  // From now on prefixes are computed. Requires: `model` outlives the gRPC server.
  void Serve(ServedModel& model);
  void BeginDrain() { draining_ = true; }

  grpc::ServerBidiReactor<v1::ConsumerMessage, v1::ProducerMessage>* FetchPrefix(
      grpc::CallbackServerContext* context) override;

  grpc::ServerUnaryReactor* QuotePrefix(grpc::CallbackServerContext* context, const v1::QuoteRequest* request,
                                        v1::QuoteResponse* response) override;

  TransferCounts counts() const;

 private:
  class FetchCall;
  enum class End { kSent, kRefused, kFailed, kAbandoned, kExpired };

  // Errors: UNAUTHENTICATED; UNAVAILABLE while loading or draining.
  StatusOr<Caller> Admit(const grpc::CallbackServerContext& context, std::string_view method) const;
  // Ends `call` with what a fetch would find, or with the error.
  void Quote(const Caller& caller, const v1::QuoteRequest& request, v1::QuoteResponse& response, UnaryCall& call);
  engine::PrefixSender::Limits SenderLimits(const ServedModel& model) const;
  // Whether `caller` may have prefixes of `tenant`. Errors: PERMISSION_DENIED.
  Status MayHave(const Caller& caller, const std::string& tenant) const;
  // Memory for the copy of a prefix. Errors: RESOURCE_EXHAUSTED.
  Status Take(int64_t bytes);
  void CloseCall(int64_t bytes);
  void Count(End end, int64_t bytes);
  void Beat();

  const LiveConfig& config_;
  const Authenticator& authenticator_;
  Metrics& metrics_;
  const ServedCall::Keepers keepers_;
  std::atomic<ServedModel*> model_ = nullptr;  // Null: loading.
  std::atomic<bool> draining_ = false;

  mutable Mutex mu_;
  CondVar wake_;
  TransferCounts counts_ GUARDED_BY(mu_);

  Mutex calls_mu_;  // Before a call's own.
  std::map<int64_t, FetchCall*> calls_ GUARDED_BY(calls_mu_);
  int64_t last_call_ GUARDED_BY(calls_mu_) = 0;
  bool closing_ GUARDED_BY(calls_mu_) = false;
  std::thread heart_;  // Last: it uses all above.
};

}  // namespace invar::server
