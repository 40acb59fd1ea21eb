// The RPCs of invar.v1.GenerationService, on gRPC's callback API. Reactors only hand over: requests are prepared on a
// task queue, output arrives through a TokenStream.
// Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "invar/v1/generation.grpc.pb.h"
#include "server/auth.h"
#include "server/live_config.h"
#include "server/metrics.h"
#include "server/open_calls.h"
#include "server/served_call.h"
#include "server/served_model.h"
#include "server/stalled_readers.h"
#include "server/task_queue.h"
#include "server/token_stream.h"
#include "server/turn_queue.h"
#include "server/unary_call.h"

namespace invar::server {

class GenerateService final : public v1::GenerationService::CallbackService {
 public:
  // Requires: all outlive the gRPC server.
  GenerateService(const LiveConfig& config, const Authenticator& authenticator, Metrics& metrics, const Clock& clock);
  // The destructor requires: no call is open.

  // From now on requests are served. Requires: `model` outlives the gRPC server.
  void Serve(ServedModel& model);
  // From now on new requests get UNAVAILABLE.
  void BeginDrain();

  // True when no call of any kind is open any more; waits at most `timeout`.
  bool WaitIdle(const std::chrono::milliseconds timeout) { return open_calls_.WaitIdle(timeout); }
  CallReport calls() const;
  // For other services on the same ports: what counts and watches every call.
  ServedCall::Keepers keepers() { return {open_calls_, stalled_readers_, clock_}; }

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* RenderChat(grpc::CallbackServerContext* context, const v1::RenderChatRequest* request,
                                       v1::RenderChatResponse* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;

 private:
  class GenerateCall;

  struct UnaryMethod {
    Rpc rpc;
    std::string_view path;
    bool takes_time = true;  // Too long for a gRPC reaction: it waits for a preparer.
  };

  // Counts the call as open, let in or not.
  Arrival ArriveAt(const grpc::CallbackServerContext& context, CallKind kind, std::string_view method,
                   const google::protobuf::Message& request);
  // Errors: RESOURCE_EXHAUSTED naming the limit; `work` is then never called.
  Status PostPreparing(const std::string& tenant, std::function<void()> work);
  // The tenant, where the call may go on. Errors: UNAUTHENTICATED; UNAVAILABLE while loading or draining.
  StatusOr<std::string> Admit(const grpc::CallbackServerContext& context, std::string_view method) const;
  template <typename Work>
  grpc::ServerUnaryReactor* RunUnary(grpc::CallbackServerContext* context, const UnaryMethod& method,
                                     const google::protobuf::Message& request, google::protobuf::Message& response,
                                     Work work);

  const LiveConfig& config_;
  const Authenticator& authenticator_;
  Metrics& metrics_;
  const Clock& clock_;
  const int64_t preparing_max_;
  std::atomic<ServedModel*> model_ = nullptr;  // Null: loading.
  std::atomic<bool> draining_ = false;
  std::atomic<int64_t> preparing_refusals_ = 0;        // Calls refused because the preparers' queue was full, ever.
  std::atomic<int64_t> preparing_share_refusals_ = 0;  // Because their tenant had its share of it.
  OpenCalls open_calls_;
  StalledReaders stalled_readers_;
  TurnQueue writers_;    // Writes of all streams.
  TaskQueue preparers_;  // Tokenizing and rendering.
};

}  // namespace invar::server
