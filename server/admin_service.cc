// See admin_service.h.
#include "server/admin_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "config/fields.h"
#include "server/pending.h"
#include "server/translate_admin.h"

namespace invar::server {
namespace {

// Calls that wait for their turn; of one tenant half of them.
constexpr size_t kWaitingMax = 32;

}  // namespace

AdminService::AdminService(const LiveConfig& config, const Authenticator& authenticator, Metrics& metrics,
                           const ServedCall::Keepers& keepers, CacheView& view)
    : config_(config),
      authenticator_(authenticator),
      metrics_(metrics),
      keepers_(keepers),
      view_(view),
      worker_(1, kWaitingMax) {}

StatusOr<AdminCaller> AdminService::Admit(const grpc::CallbackServerContext& context,
                                          const std::string_view method) const {
  StatusOr<Caller> caller = authenticator_.Authenticate(context, method);
  if (!caller.ok()) return caller.status();
  if (model_.load() == nullptr) return Unavailable("the model is still loading");
  return AdminCaller{.caller = *std::move(caller),
                     .by_token = authenticator_.wants_tokens(),
                     .is_loopback = config::IsLoopback(config_.config()->server.listen)};
}

grpc::ServerUnaryReactor* AdminService::Run(grpc::CallbackServerContext& context, const Rpc rpc,
                                            const std::string_view method, const google::protobuf::Message& request,
                                            const google::protobuf::Message& response, Work work) {
  const StatusOr<AdminCaller> who = Admit(context, method);
  const StatusOr<std::string> tenant = who.ok() ? StatusOr<std::string>(who->caller.tenant) : who.status();
  Arrival arrival =
      Arrive(keepers_.open_calls, keepers_.clock, *config_.config(), context, CallKind::kUnary, tenant, request);
  const OpenCalls::Verdict verdict = arrival.verdict;
  auto* call = new UnaryCall(keepers_, metrics_, rpc, context, std::move(arrival));  // Deletes itself.
  if (!verdict.status.ok()) {
    if (verdict.reset) context.TryCancel();
    call->End(verdict.status);
    return call;
  }
  const auto run = [this, call, &response, who = *who, work = std::move(work)] {
    call->Run([&] { return work(who, *call); }, response, *config_.config());
  };
  if (worker_.Post(run, *tenant, kWaitingMax / 2) != TaskQueue::Posted::kTaken) {
    call->End(ResourceExhausted("too many admin calls wait; try again later"));
  }
  return call;
}

grpc::ServerUnaryReactor* AdminService::GetCacheStatistics(grpc::CallbackServerContext* context,
                                                           const v1::GetCacheStatisticsRequest* request,
                                                           v1::GetCacheStatisticsResponse* response) {
  return Run(*context, Rpc::kGetCacheStatistics, "/invar.v1.AdminService/GetCacheStatistics", *request, *response,
             [this, request, response](const AdminCaller& who, const UnaryCall&) -> Status {
               const StatusOr<std::optional<std::string>> tenant = TenantsFor(who, request->tenant());
               if (!tenant.ok()) return tenant.status();
               const StatusOr<int32_t> nodes_max = TranslateNodesMax(*request);
               if (!nodes_max.ok()) return nodes_max.status();
               const auto snapshot = view_.Fresh(*model_.load()->engine, *tenant, kEngineWait);
               if (!snapshot.ok()) return snapshot.status();
               FillStatistics(**snapshot, *tenant, *nodes_max, *response);
               response->set_age_seconds(view_.AgeSeconds(**snapshot));
               return OkStatus();
             });
}

grpc::ServerUnaryReactor* AdminService::FlushCache(grpc::CallbackServerContext* context,
                                                   const v1::FlushCacheRequest* request,
                                                   v1::FlushCacheResponse* response) {
  return Run(
      *context, Rpc::kFlushCache, "/invar.v1.AdminService/FlushCache", *request, *response,
      [this, request, response](const AdminCaller& who, const UnaryCall&) { return Flush(*request, who, *response); });
}

Status AdminService::Flush(const v1::FlushCacheRequest& request, const AdminCaller& who,
                           v1::FlushCacheResponse& response) {
  StatusOr<std::optional<std::string>> tenant = TenantsFor(who, request.tenant());
  if (!tenant.ok()) return tenant.status();
  StatusOr<cache::FlushOptions> what = TranslateFlush(request, *std::move(tenant), who.by_token);
  if (!what.ok()) return what.status();
  const auto freed = std::make_shared<Pending<cache::FlushReport>>();
  const Status posted =
      model_.load()->engine->FlushCache(*what, [freed](const cache::FlushReport& report) { freed->Set(report); });
  if (!posted.ok()) return posted;
  const std::optional<cache::FlushReport> report = freed->Wait(kEngineWait);
  view_.Invalidate();
  if (!report.has_value()) return EngineIsBusy(kEngineWait);
  response.set_freed_bytes(report->bytes);
  response.set_freed_nodes(report->nodes);
  response.set_freed_checkpoints(report->checkpoints);
  LogFields fields;
  fields.Add("by", who.caller.tenant)
      .Add("tenant", what->tenant.value_or("(all)"))
      .Add("one_salt", what->salt.has_value() ? "true" : "false")
      .Add("freed_bytes", report->bytes);
  LogWithFields(*Logger("server"), spdlog::level::info, "cache flushed", fields);
  return OkStatus();
}

grpc::ServerUnaryReactor* AdminService::ExplainPlan(grpc::CallbackServerContext* context,
                                                    const v1::ExplainPlanRequest* request,
                                                    v1::ExplainPlanResponse* response) {
  return Run(*context, Rpc::kExplainPlan, "/invar.v1.AdminService/ExplainPlan", *request, *response,
             [this, request, response](const AdminCaller& who, const UnaryCall& call) {
               return Explain(*request, who, call, *response);
             });
}

Status AdminService::Explain(const v1::ExplainPlanRequest& request, const AdminCaller& who, const UnaryCall& call,
                             v1::ExplainPlanResponse& response) {
  const StatusOr<std::string> tenant = TenantOf(who, request.tenant());
  if (!tenant.ok()) return tenant.status();
  const std::shared_ptr<const config::Config> config = config_.config();
  StatusOr<TranslatedRequest> translated = TranslateGenerate(
      AsGenerate(request), *tenant, ContextOf(*model_.load(), *config, [&call] { return call.Interrupted(); }));
  if (!translated.ok()) return translated.status();
  const auto prompt_tokens = static_cast<int32_t>(translated->request.prompt.size());
  const auto plan = std::make_shared<Pending<cache::PlanReport>>();
  const Status posted = model_.load()->engine->ExplainPlan(
      std::move(translated->request), [plan](const cache::PlanReport& report) { plan->Set(report); });
  if (!posted.ok()) return posted;
  const std::optional<cache::PlanReport> report = plan->Wait(kEngineWait);
  if (!report.has_value()) return EngineIsBusy(kEngineWait);
  FillPlan(*report, prompt_tokens, response);
  return OkStatus();
}

}  // namespace invar::server
