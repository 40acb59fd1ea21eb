// The RPCs of invar.v1.AdminService. The cache is the engine thread's: what is asked travels by the inbox and is
// answered between two steps. Calls are worked off one after another on one thread, so that at most one question at a
// time is with the engine, however many are asked.
// Threads: any.
#pragma once

#include <chrono>
#include <functional>

#include "invar/v1/admin.grpc.pb.h"
#include "server/access/auth.h"
#include "server/calls/call_gate.h"
#include "server/calls/unary_call.h"
#include "server/services/cache_view.h"
#include "server/threads/task_queue.h"

namespace invar::server {

class AdminService final : public v1::AdminService::CallbackService {
 public:
  // Above any step; a call waits no longer for the engine.
  static constexpr std::chrono::milliseconds kEngineWait{10'000};

  // Requires: all outlive the gRPC server.
  AdminService(CallGate& gate, CacheView& view);

  grpc::ServerUnaryReactor* GetCacheStatistics(grpc::CallbackServerContext* context,
                                               const v1::GetCacheStatisticsRequest* request,
                                               v1::GetCacheStatisticsResponse* response) override;
  grpc::ServerUnaryReactor* FlushCache(grpc::CallbackServerContext* context, const v1::FlushCacheRequest* request,
                                       v1::FlushCacheResponse* response) override;
  grpc::ServerUnaryReactor* ExplainPlan(grpc::CallbackServerContext* context, const v1::ExplainPlanRequest* request,
                                        v1::ExplainPlanResponse* response) override;

 private:
  using Work = std::function<Status(const UnaryCall& call)>;

  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext& context, Rpc rpc, const google::protobuf::Message& request,
                                google::protobuf::Message& response, Work work);
  Status Statistics(const v1::GetCacheStatisticsRequest& request, const Caller& who,
                    v1::GetCacheStatisticsResponse& response);
  Status Flush(const v1::FlushCacheRequest& request, const Caller& who, v1::FlushCacheResponse& response);
  Status Explain(const v1::ExplainPlanRequest& request, const UnaryCall& call, v1::ExplainPlanResponse& response);
  // Of a call that was let in.
  engine::Engine& engine() const { return *gate_.model()->engine; }

  CallGate& gate_;
  CacheView& view_;
  TaskQueue worker_;  // Last: its thread uses all above.
};

}  // namespace invar::server
