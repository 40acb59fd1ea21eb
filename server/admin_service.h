// The RPCs of invar.v1.AdminService. The cache is the engine thread's: what is asked travels by the inbox and is
// answered between two steps. Calls are worked off one after another on one thread, so that at most one question at a
// time is with the engine, however many are asked.
// Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string_view>

#include "invar/v1/admin.grpc.pb.h"
#include "server/admin_access.h"
#include "server/auth.h"
#include "server/cache_view.h"
#include "server/live_config.h"
#include "server/metrics.h"
#include "server/served_call.h"
#include "server/served_model.h"
#include "server/task_queue.h"
#include "server/unary_call.h"

namespace invar::server {

class AdminService final : public v1::AdminService::CallbackService {
 public:
  // Above any step; a call waits no longer for the engine.
  static constexpr std::chrono::milliseconds kEngineWait{10'000};

  // Requires: all outlive the gRPC server.
  AdminService(const LiveConfig& config, const Authenticator& authenticator, Metrics& metrics,
               const ServedCall::Keepers& keepers, CacheView& view);

  // From now on requests are served. Requires: `model` outlives the gRPC server, but for its engine's thread.
  void Serve(ServedModel& model) { model_ = &model; }

  grpc::ServerUnaryReactor* GetCacheStatistics(grpc::CallbackServerContext* context,
                                               const v1::GetCacheStatisticsRequest* request,
                                               v1::GetCacheStatisticsResponse* response) override;
  grpc::ServerUnaryReactor* FlushCache(grpc::CallbackServerContext* context, const v1::FlushCacheRequest* request,
                                       v1::FlushCacheResponse* response) override;
  grpc::ServerUnaryReactor* ExplainPlan(grpc::CallbackServerContext* context, const v1::ExplainPlanRequest* request,
                                        v1::ExplainPlanResponse* response) override;

 private:
  using Work = std::function<Status(const AdminCaller& who, const UnaryCall& call)>;

  // Errors: UNAUTHENTICATED; UNAVAILABLE while loading.
  StatusOr<AdminCaller> Admit(const grpc::CallbackServerContext& context, std::string_view method) const;
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext& context, Rpc rpc, std::string_view method,
                                const google::protobuf::Message& request, const google::protobuf::Message& response,
                                Work work);
  Status Flush(const v1::FlushCacheRequest& request, const AdminCaller& who, v1::FlushCacheResponse& response);
  Status Explain(const v1::ExplainPlanRequest& request, const AdminCaller& who, const UnaryCall& call,
                 v1::ExplainPlanResponse& response);

  const LiveConfig& config_;
  const Authenticator& authenticator_;
  Metrics& metrics_;
  const ServedCall::Keepers keepers_;
  CacheView& view_;
  std::atomic<ServedModel*> model_ = nullptr;  // Null: loading.
  TaskQueue worker_;                           // Last: its thread uses all above.
};

}  // namespace invar::server
