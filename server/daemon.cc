// Wiring. gRPC gets its connections from our acceptor only; every call passes the gate; health says what is true now.
#include "server/daemon.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/log.h"
#include "config/fields.h"
#include "config/transfer.h"
#include "server/access/cache_access.h"
#include "server/services/cache_page.h"
#include "server/version.h"

namespace invar::server {
namespace {

constexpr const char* kServiceNames[] = {"", "invar.v1.GenerationService", "invar.v1.AdminService"};
constexpr const char kTransferServiceName[] = "invar.v1.TransferService";  // Where prefixes are served.
// Gateways ping every 10 to 30 s; gRPC's default would answer that with GOAWAY (too_many_pings) on long silent calls.
constexpr int kPingIntervalMinMs = 10'000;
// A peer whose machine vanished is noticed within a minute.
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMetadataBytesMax = 16 * 1024;
// What gRPC holds for a connection beside messages: its read buffer and the state of HTTP/2 and TLS.
constexpr int64_t kConnectionBytes = 64 * 1024;

AcceptorOptions AcceptorOptionsOf(const config::Config::Server& config) {
  return {.connections_max = config.connections_max,
          .connections_per_address_max = config.connections_per_address_max,
          .resets_burst = config.resets_burst,
          .resets_per_second = config.resets_per_second};
}

// Memory for what has arrived: the limits count a request only when it is whole, and one large request always has room.
size_t ReceiveBytesMax(const config::Config& config) {
  const int64_t messages = std::max(config.limits.open_request_bytes_max, 2 * config.server.request_bytes_max);
  const int64_t refused = config.limits.refused_request_bytes_max;
  return static_cast<size_t>(messages + refused + kConnectionBytes * config.server.connections_max);
}

void SetArguments(const config::Config::Server& config, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(config.request_bytes_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(config.concurrent_streams_max));
  builder.AddChannelArgument("grpc.server_handshake_timeout_ms", static_cast<int>(config.handshake_timeout.count()));
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kPingIntervalMinMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
}

// Of a Host header: with or without a port.
bool IsLoopbackHost(const std::string_view host) {
  return config::IsLoopback(host) || config::IsLoopback(std::string(host) + ":80");
}

}  // namespace

Daemon::Daemon(config::Loaded config, const Clock& clock)
    : live_config_(std::move(config)),
      clock_(clock),
      metrics_(live_config_.config()->metrics.vllm_aliases),
      authenticator_(live_config_.config()->auth),
      gate_(live_config_, authenticator_, metrics_, clock_),
      generate_service_(gate_),
      cache_view_(clock_),
      admin_service_(gate_, cache_view_),
      transfer_service_(gate_) {}

StatusOr<std::unique_ptr<Daemon>> Daemon::Start(config::Loaded config, ModelLoader loader, const Clock& clock,
                                                std::function<void(const Status&)> on_loaded) {
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(config), clock));
  if (Status s = daemon->StartGrpc(); !s.ok()) return s;
  if (Status s = daemon->StartOps(); !s.ok()) return s;
  Logger("server")->info("ports open: grpc={} ops={}; loading {}", daemon->grpc_address(), daemon->ops_address(),
                         daemon->config()->model.path);
  daemon->loader_ = std::thread([raw = daemon.get(), loader = std::move(loader), on_loaded = std::move(on_loaded)] {
    raw->LoadModel(loader, on_loaded);
  });
  return daemon;
}

Daemon::~Daemon() {
  if (loader_.joinable()) loader_.join();
  port_probe_.reset();
  if (acceptor_ != nullptr) acceptor_->Stop();
  // First the engine thread: it posts to what the services own. What is live ends with UNAVAILABLE.
  if (model_ != nullptr) model_->engine->Stop();
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
  }
  // OnDone of the last calls may still be on its way, and uses the services. Who cannot wait leaves the process.
  while (!gate_.WaitIdle(std::chrono::seconds(5))) Logger("server")->warn("still waiting for open calls to let go");
}

Status Daemon::StartGrpc() {
  const std::shared_ptr<const config::Config> config = live_config_.config();
  StatusOr<std::unique_ptr<TlsFiles>> tls = TlsFiles::Open(config->tls);
  if (!tls.ok()) return tls.status();
  tls_ = *std::move(tls);
  StatusOr<ListeningSocket> socket = Listen(config->server.listen);
  if (!socket.ok()) return socket.status();
  acceptor_ =
      std::make_unique<ConnectionAcceptor>(*std::move(socket), AcceptorOptionsOf(config->server), metrics_, clock_);

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetArguments(config->server, builder);
  builder.SetResourceQuota(receive_quota_.Resize(ReceiveBytesMax(*config)));
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<InterceptorFactory>(
      authenticator_, [this](const std::string& peer) { acceptor_->NoteCancel(peer); }));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  auto sink = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, tls_->Credentials());
  builder.RegisterService(&generate_service_);
  builder.RegisterService(&admin_service_);
  if (config::ServesPrefixes(config->transfer)) builder.RegisterService(&transfer_service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return InvalidArgument("the gRPC server did not start: check tls.certificate, tls.key and tls.client_ca");
  }
  SetHealth(false);
  acceptor_->Start(std::move(sink));
  if (config->health.probe_period > config::Duration::zero()) {
    port_probe_ = std::make_unique<PortProbe>(PortProbe::Options{.address = acceptor_->address(),
                                                                 .tls = !config->tls.certificate.empty(),
                                                                 .period = config->health.probe_period});
  }
  return OkStatus();
}

Status Daemon::StartOps() {
  const std::string listen = config()->ops.listen;
  if (listen == "off") return OkStatus();
  StatusOr<std::unique_ptr<OpsHttp>> ops = OpsHttp::Start(
      listen, {.metrics = [this] { return MetricsText(); },
               .alive = [this] { return Alive(); },
               .ready = [this] { return Ready(); },
               .version_json = [] { return fmt::format("{{\"name\":\"invard\",\"version\":\"{}\"}}\n", kVersion); },
               .config_yaml = [this] { return config::PrintConfig(*live_config_.loaded()); },
               .cache_page = [this](const PageRequest& request) { return CachePage(request); }});
  if (!ops.ok()) return ops.status();
  ops_ = *std::move(ops);
  return OkStatus();
}

void Daemon::LoadModel(const ModelLoader& loader, const std::function<void(const Status&)>& on_loaded) {
  const TimeNs begin = clock_.Now();
  const std::shared_ptr<const config::Config> config = live_config_.config();
  StatusOr<ModelParts> parts = loader(*config);
  if (!parts.ok()) return on_loaded(parts.status());
  StatusOr<std::unique_ptr<ServedModel>> model = StartEngine(*config, *std::move(parts), clock_);
  if (!model.ok()) return on_loaded(model.status());
  model_ = *std::move(model);
  gate_.Serve(*model_);
  {
    MutexLock lock(drain_mu_);
    if (!gate_.draining()) SetHealth(true);
  }
  Logger("server")->info("serving model={} architecture={} numerics={} load_seconds={:.3f}", model_->parts.name,
                         model_->spec().architecture, model_->spec().numerics_id, ToSeconds(clock_.Now() - begin));
  on_loaded(OkStatus());
}

void Daemon::SetHealth(const bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  Check(health != nullptr, "the default health service is enabled");
  for (const char* const service : kServiceNames) health->SetServingStatus(service, serving);
  if (config::ServesPrefixes(config()->transfer)) health->SetServingStatus(kTransferServiceName, serving);
}

Status Daemon::Reload(const config::Loaded& wanted) {
  const std::shared_ptr<const config::Loaded> running = live_config_.loaded();
  const StatusOr<config::ReloadPlan> plan = config::PlanReload(running->config, wanted.config);
  if (!plan.ok()) return plan.status();
  const StatusOr<bool> new_identity = tls_->Reload(plan->config.tls);
  if (!new_identity.ok()) return new_identity.status();
  // Nothing below can fail.
  authenticator_.Replace(plan->config.auth);
  acceptor_->SetOptions(AcceptorOptionsOf(plan->config.server));
  receive_quota_.Resize(ReceiveBytesMax(plan->config));
  if (std::ranges::find(plan->changed, "log.level") != plan->changed.end()) SetLogLevel(plan->config.log.level);
  config::Loaded next{.config = plan->config, .origins = running->origins};
  for (const std::string_view path : plan->changed) {
    next.origins.erase(std::string(path));
    const auto origin = wanted.origins.find(std::string(path));
    if (origin != wanted.origins.end()) next.origins.insert(*origin);
  }
  live_config_.Replace(std::move(next));
  Logger("server")->info("configuration reloaded: changed [{}]; TLS files {}", fmt::join(plan->changed, ", "),
                         *new_identity ? "replaced" : "unchanged");
  if (!plan->needs_restart.empty()) {
    Logger("server")->warn("changed in the configuration, but in force from a restart on only: {}",
                           fmt::join(plan->needs_restart, ", "));
  }
  return OkStatus();
}

void Daemon::BeginDrain() {
  {
    MutexLock lock(drain_mu_);
    gate_.BeginDrain();
    SetHealth(false);
  }
  // The engine goes on taking requests: calls that were let in before may still be on their way to it.
  Logger("server")->info("draining: {} calls open", gate_.open_calls().report().calls.total());
}

void Daemon::Persist(const std::stop_token& hurry) {
  const ServedModel* const model = gate_.model();
  if (model == nullptr) return;
  const std::chrono::nanoseconds limit = config()->drain.persist_timeout;
  const TimeNs begin = clock_.Now();
  const cache::PersistReport report = model->engine->Persist(limit.count(), hurry);
  if (report.prefixes == 0) return;
  const std::string text = fmt::format("{} of {} cached prefixes are in the tiers, after {:.1f} s", report.stored,
                                       report.prefixes, ToSeconds(clock_.Now() - begin));
  if (report.stored == report.prefixes) {
    Logger("server")->info("{}", text);
  } else if (hurry.stop_requested()) {
    Logger("server")->warn("{}; the rest is lost: a further stop signal ended the wait", text);
  } else if (report.was_cut_short) {
    Logger("server")->warn("{}; the rest is lost: drain.persist_timeout is {}", text, config()->drain.persist_timeout);
  } else {
    Logger("server")->warn("{}; the rest is lost: the cache's warnings say what the tiers did not take", text);
  }
}

Status Daemon::Alive() {
  if (Status s = PortAlive(); !s.ok()) return s;
  return EngineAlive();
}

Status Daemon::PortAlive() const {
  if (port_probe_ == nullptr) return OkStatus();
  const config::Duration failing = port_probe_->failing_for();
  // As patient as with the engine: descriptors that ran out come back.
  if (failing == failing.zero() || failing < config()->health.stall_timeout) return OkStatus();
  return Unavailable(fmt::format("the gRPC port has not reacted to a connection for {:.1f} s",
                                 std::chrono::duration<double>(failing).count()));
}

Status Daemon::EngineAlive() {
  const ServedModel* const model = gate_.model();
  if (model == nullptr) return OkStatus();  // Loading is being alive.
  const engine::EngineStats stats = model->engine->Stats();
  const bool has_work = stats.running + stats.waiting > stats.held;
  const TimeNs now = clock_.Now();
  MutexLock lock(watch_mu_);
  // The age of the last step alone would condemn the first request after a quiet hour: what counts is how long work has
  // been seen without a step between.
  if (!has_work || stats.steps != watched_steps_) {
    watched_steps_ = has_work ? stats.steps : -1;
    watched_since_ = now;
    return OkStatus();
  }
  const TimeNs quiet = now - watched_since_;
  if (quiet > std::chrono::nanoseconds(config()->health.stall_timeout).count()) {
    return Unavailable(fmt::format("requests wait and no step has ended for {:.1f} s", ToSeconds(quiet)));
  }
  return OkStatus();
}

Status Daemon::Ready() {
  if (gate_.draining()) return Unavailable("draining");
  if (gate_.model() == nullptr) return Unavailable("loading");
  return Alive();
}

Status Daemon::MaySeeCachePage(const PageRequest& request) const {
  StatusOr<Caller> who = authenticator_.AuthenticateHeader(BearerOf(request.authorization));
  if (!who.ok()) return who.status();
  if (who->known_by == KnownBy::kNothing) {
    if (!IsLoopbackHost(request.host)) {
      // A page of another site whose name was made to lead here. (DNS rebinding; a token would keep it out.)
      return Status(StatusCode::kPermissionDenied,
                    "without API tokens this page is for a browser that names this "
                    "machine: http://127.0.0.1:PORT/cache");
    }
    who->known_by = KnownByPort(config()->ops.listen, /*client_ca=*/{});
  }
  const StatusOr<std::optional<std::string>> tenants = TenantsFor(*who, {});
  if (!tenants.ok()) return tenants.status();
  if (!tenants->has_value()) return OkStatus();
  return Status(StatusCode::kPermissionDenied, "this page shows all tenants: use a token with admin: true");
}

PageAnswer Daemon::CachePage(const PageRequest& request) {
  if (const Status may = MaySeeCachePage(request); !may.ok()) {
    return {.status = may.code() == StatusCode::kUnauthenticated ? 401 : 403,
            .html = "<!DOCTYPE html><title>invard</title><p>" + EscapeHtml(may.message()) + "</p>\n"};
  }
  ServedModel* const model = gate_.model();
  if (model == nullptr) return {.status = 503, .html = "<!DOCTYPE html><title>invard</title><p>loading</p>\n"};
  const std::shared_ptr<const engine::CacheSnapshot> snapshot = cache_view_.Latest(*model->engine);
  return {.html = server::CachePage(model->parts.name, snapshot.get(),
                                    snapshot == nullptr ? 0.0 : cache_view_.AgeSeconds(*snapshot))};
}

std::string Daemon::MetricsText() const {
  MetricsSnapshot snapshot;
  snapshot.draining = gate_.draining();
  snapshot.connections_open = acceptor_->open_count();
  snapshot.calls = gate_.open_calls().report();
  snapshot.preparing = generate_service_.preparing();
  snapshot.transfer = transfer_service_.counts();
  snapshot.verify = transfer_service_.verify_counts();
  if (const ServedModel* const model = gate_.model()) {
    snapshot.model = model->parts.name;
    snapshot.spec = model->spec();
    snapshot.engine = model->engine->Stats();
    if (model->prefixes != nullptr) snapshot.aborts = model->prefixes->aborts();
    if (model->parts.backend != nullptr) snapshot.kernel_scratch_bytes = model->parts.backend->scratch_bytes();
    snapshot.serving = !gate_.draining();
  }
  return metrics_.Text(snapshot);
}

}  // namespace invar::server
