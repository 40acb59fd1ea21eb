// See admin_service.h.
#include "server/services/admin_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "server/access/cache_access.h"
#include "server/threads/pending.h"
#include "server/wire/translate_admin.h"

namespace invar::server {
namespace {

// Calls that wait for their turn; of one tenant half of them.
constexpr size_t kWaitingMax = 32;

}  // namespace

AdminService::AdminService(CallGate& gate, CacheView& view) : gate_(gate), view_(view), worker_(1, kWaitingMax) {}

grpc::ServerUnaryReactor* AdminService::Run(grpc::CallbackServerContext& context, const Rpc rpc,
                                            const google::protobuf::Message& request,
                                            google::protobuf::Message& response, Work work) {
  auto* const call = new UnaryCall(gate_, context, gate_.Enter(context, rpc, request));  // Deletes itself.
  if (!call->Begin()) return call;
  const auto run = [call, &response, work = std::move(work)] { call->Run([&] { return work(*call); }, response); };
  if (worker_.Post(run, call->caller().tenant, kWaitingMax / 2) != TaskQueue::Posted::kTaken) {
    call->End(ResourceExhausted("too many admin calls wait; try again later"));
  }
  return call;
}

grpc::ServerUnaryReactor* AdminService::GetCacheStatistics(grpc::CallbackServerContext* context,
                                                           const v1::GetCacheStatisticsRequest* request,
                                                           v1::GetCacheStatisticsResponse* response) {
  return Run(*context, Rpc::kGetCacheStatistics, *request, *response,
             [=, this](const UnaryCall& call) { return Statistics(*request, call.caller(), *response); });
}

grpc::ServerUnaryReactor* AdminService::FlushCache(grpc::CallbackServerContext* context,
                                                   const v1::FlushCacheRequest* request,
                                                   v1::FlushCacheResponse* response) {
  return Run(*context, Rpc::kFlushCache, *request, *response,
             [=, this](const UnaryCall& call) { return Flush(*request, call.caller(), *response); });
}

grpc::ServerUnaryReactor* AdminService::ExplainPlan(grpc::CallbackServerContext* context,
                                                    const v1::ExplainPlanRequest* request,
                                                    v1::ExplainPlanResponse* response) {
  return Run(*context, Rpc::kExplainPlan, *request, *response,
             [=, this](const UnaryCall& call) { return Explain(*request, call, *response); });
}

Status AdminService::Statistics(const v1::GetCacheStatisticsRequest& request, const Caller& who,
                                v1::GetCacheStatisticsResponse& response) {
  const StatusOr<std::optional<std::string>> tenant = TenantsFor(who, request.tenant());
  if (!tenant.ok()) return tenant.status();
  const StatusOr<int32_t> nodes_max = TranslateNodesMax(request);
  if (!nodes_max.ok()) return nodes_max.status();
  const auto snapshot = view_.Fresh(engine(), *tenant, kEngineWait);
  if (!snapshot.ok()) return snapshot.status();
  FillStatistics(**snapshot, *tenant, *nodes_max, response);
  response.set_age_seconds(view_.AgeSeconds(**snapshot));
  return OkStatus();
}

Status AdminService::Flush(const v1::FlushCacheRequest& request, const Caller& who, v1::FlushCacheResponse& response) {
  StatusOr<std::optional<std::string>> tenant = TenantsFor(who, request.tenant());
  if (!tenant.ok()) return tenant.status();
  StatusOr<cache::FlushOptions> what = TranslateFlush(request, *std::move(tenant), who.known_by == KnownBy::kToken);
  if (!what.ok()) return what.status();
  const auto freed = std::make_shared<Pending<cache::FlushReport>>();
  const Status posted = engine().FlushCache(*what, [freed](const cache::FlushReport& report) { freed->Set(report); });
  if (!posted.ok()) return posted;
  const std::optional<cache::FlushReport> report = freed->Wait(kEngineWait);
  view_.Invalidate();
  if (!report.has_value()) return EngineIsBusy(kEngineWait);
  response.set_freed_bytes(report->bytes);
  response.set_freed_nodes(report->nodes);
  response.set_freed_checkpoints(report->checkpoints);
  LogFields fields;
  fields.Add("by", who.tenant)
      .Add("tenant", what->tenant.value_or("(all)"))
      .Add("one_salt", what->salt.has_value() ? "true" : "false")
      .Add("freed_bytes", report->bytes);
  LogWithFields(*Logger("server"), spdlog::level::info, "cache flushed", fields);
  return OkStatus();
}

Status AdminService::Explain(const v1::ExplainPlanRequest& request, const UnaryCall& call,
                             v1::ExplainPlanResponse& response) {
  const StatusOr<std::string> tenant = TenantOf(call.caller(), request.tenant());
  if (!tenant.ok()) return tenant.status();
  const std::shared_ptr<const config::Config> config = gate_.config();
  StatusOr<TranslatedRequest> translated = TranslateGenerate(
      AsGenerate(request), *tenant, ContextOf(*gate_.model(), *config, [&call] { return call.Interrupted(); }));
  if (!translated.ok()) return translated.status();
  const auto prompt_tokens = static_cast<int32_t>(translated->request.prompt.size());
  const auto plan = std::make_shared<Pending<cache::PlanReport>>();
  const Status posted = engine().ExplainPlan(std::move(translated->request),
                                             [plan](const cache::PlanReport& report) { plan->Set(report); });
  if (!posted.ok()) return posted;
  const std::optional<cache::PlanReport> report = plan->Wait(kEngineWait);
  if (!report.has_value()) return EngineIsBusy(kEngineWait);
  FillPlan(*report, prompt_tokens, response);
  return OkStatus();
}

}  // namespace invar::server
