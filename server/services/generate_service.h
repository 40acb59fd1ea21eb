// The RPCs of invar.v1.GenerationService, on gRPC's callback API. Reactors only hand over: requests are prepared on a
// task queue, output arrives through a TokenStream.
// Threads: any.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "invar/v1/generation.grpc.pb.h"
#include "server/calls/call_gate.h"
#include "server/threads/task_queue.h"
#include "server/threads/turn_queue.h"
#include "server/wire/translate.h"

namespace invar::server {

class GenerateService final : public v1::GenerationService::CallbackService {
 public:
  // Requires: `gate` outlives it. The destructor requires: no call is open.
  explicit GenerateService(CallGate& gate);

  PreparingReport preparing() const;

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

  // Where a unary call's work is done.
  enum class On {
    kPreparer,
    kReaction,  // It takes no time.
  };

  // Errors: RESOURCE_EXHAUSTED naming the limit; `work` is then never called.
  Status PostPreparing(const std::string& tenant, std::function<void()> work);
  template <typename Work>
  grpc::ServerUnaryReactor* RunUnary(grpc::CallbackServerContext* context, Rpc rpc, On where,
                                     const google::protobuf::Message& request, google::protobuf::Message& response,
                                     Work work);

  CallGate& gate_;
  const int64_t preparing_max_;
  std::atomic<int64_t> refusals_ = 0;        // Calls refused because the preparers' queue was full, ever.
  std::atomic<int64_t> share_refusals_ = 0;  // Because their tenant had its share of it.
  TurnQueue writers_;                        // Writes of all streams.
  TaskQueue preparers_;                      // Tokenizing and rendering.
};

}  // namespace invar::server
