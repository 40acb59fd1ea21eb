// The RPCs of invar.v1.GenerationService, on gRPC's callback API. Reactors only hand over: requests are prepared on a
// task queue, output arrives through a TokenStream.
// Threads: any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "invar/v1/generation.grpc.pb.h"
#include "server/auth.h"
#include "server/live_config.h"
#include "server/metrics.h"
#include "server/open_calls.h"
#include "server/served_model.h"
#include "server/stalled_readers.h"
#include "server/task_queue.h"
#include "server/token_stream.h"
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

  OpenCalls& open_calls() { return open_calls_; }
  const OpenCalls& open_calls() const { return open_calls_; }
  // Calls that wait for a thread that prepares them.
  int64_t preparing() const { return static_cast<int64_t>(preparers_.waiting()); }

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

  // The tenant, where the call may go on. Errors: UNAUTHENTICATED; UNAVAILABLE while loading or draining.
  StatusOr<std::string> Admit(const grpc::CallbackServerContext& context, std::string_view method) const;
  template <typename Work>
  grpc::ServerUnaryReactor* RunUnary(grpc::CallbackServerContext* context, Rpc rpc, std::string_view method,
                                     const google::protobuf::Message& request, Work work);

  const LiveConfig& config_;
  const Authenticator& authenticator_;
  Metrics& metrics_;
  const Clock& clock_;
  std::atomic<ServedModel*> model_ = nullptr;  // Null: loading.
  std::atomic<bool> draining_ = false;
  OpenCalls open_calls_;
  StalledReaders stalled_readers_;
  TaskQueue writers_;    // One thread: writes of all streams.
  TaskQueue preparers_;  // Tokenizing and rendering.
};

}  // namespace invar::server
