// Wiring. gRPC gets its connections from our acceptor only; every call passes the gate; health says what is true now.
#include "server/daemon.h"

#include <fmt/format.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "server/version.h"

namespace invar::server {
namespace {

constexpr char kServiceName[] = "invar.v1.GenerationService";
constexpr int64_t kPemBytesMax = int64_t{1} << 20;
// Gateways ping every 10 to 30 s; gRPC's default would answer that with GOAWAY (too_many_pings) on long silent calls.
constexpr int kPingIntervalMinMs = 10'000;
// A peer whose machine vanished is noticed within a minute.
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMetadataBytesMax = 16 * 1024;

// gRPC takes what is not a certificate at start and only logs it when a client comes.
Status CheckCertificate(const config::Config::Tls& tls, const std::string& certificate_pem,
                        const std::string& key_pem) {
  const auto reader = [](const std::string& pem) {
    return std::unique_ptr<BIO, decltype(&BIO_free)>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                                     BIO_free);
  };
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(reader(certificate_pem).get(), nullptr, nullptr, nullptr), X509_free);
  if (certificate == nullptr)
    return InvalidArgument("tls.certificate: " + tls.certificate + " holds no PEM certificate");
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(reader(key_pem).get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
  if (key == nullptr) return InvalidArgument("tls.key: " + tls.key + " holds no PEM private key");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return InvalidArgument("tls.key: " + tls.key + " is not the key of " + tls.certificate);
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(const config::Config::Tls& tls) {
  if (tls.certificate.empty()) return grpc::InsecureServerCredentials();
  const StatusOr<std::string> certificate = ReadFile(tls.certificate, kPemBytesMax);
  if (!certificate.ok()) return certificate.status();
  const StatusOr<std::string> key = ReadFile(tls.key, kPemBytesMax);
  if (!key.ok()) return key.status();
  if (Status s = CheckCertificate(tls, *certificate, *key); !s.ok()) return s;
  grpc::SslServerCredentialsOptions options(tls.client_ca.empty()
                                                ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_key_cert_pairs.push_back({.private_key = *key, .cert_chain = *certificate});
  if (!tls.client_ca.empty()) {
    const StatusOr<std::string> client_ca = ReadFile(tls.client_ca, kPemBytesMax);
    if (!client_ca.ok()) return client_ca.status();
    options.pem_root_certs = *client_ca;
  }
  return grpc::SslServerCredentials(options);
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

}  // namespace

Daemon::Daemon(const config::Config& config, const Clock& clock)
    : config_(config),
      clock_(clock),
      metrics_(config.metrics.vllm_aliases),
      authenticator_(config.auth),
      service_(config_, authenticator_, metrics_, clock_) {}

StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const config::Config& config, ModelLoader loader, const Clock& clock,
                                                std::function<void(const Status&)> on_loaded) {
  std::unique_ptr<Daemon> daemon(new Daemon(config, clock));
  if (Status s = daemon->StartGrpc(); !s.ok()) return s;
  if (Status s = daemon->StartOps(); !s.ok()) return s;
  Logger("server")->info("ports open: grpc={} ops={}; loading {}", daemon->grpc_address(), daemon->ops_address(),
                         config.model.path);
  daemon->loader_ = std::thread([raw = daemon.get(), loader = std::move(loader), on_loaded = std::move(on_loaded)] {
    raw->LoadModel(loader, on_loaded);
  });
  return daemon;
}

Daemon::~Daemon() {
  if (loader_.joinable()) loader_.join();
  if (acceptor_ != nullptr) acceptor_->Stop();
  // First the engine thread: it posts to what the service owns. What is live ends with UNAVAILABLE.
  if (model_ != nullptr) model_->engine->Stop();
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
  }
  // OnDone of the last calls may still be on its way, and uses the service. Who cannot wait leaves the process.
  while (!service_.WaitIdle(std::chrono::seconds(5))) Logger("server")->warn("still waiting for open calls to let go");
}

Status Daemon::StartGrpc() {
  StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials = MakeCredentials(config_.tls);
  if (!credentials.ok()) return credentials.status();
  StatusOr<ListeningSocket> socket = Listen(config_.server.listen);
  if (!socket.ok()) return socket.status();
  acceptor_ = std::make_unique<ConnectionAcceptor>(
      *std::move(socket),
      AcceptorOptions{.listen = config_.server.listen,
                      .connections_max = config_.server.connections_max,
                      .connections_per_address_max = config_.server.connections_per_address_max,
                      .resets_burst = config_.server.resets_burst,
                      .resets_per_second = config_.server.resets_per_second},
      metrics_, clock_);

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetArguments(config_.server, builder);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> gates;
  gates.push_back(
      std::make_unique<GateFactory>(authenticator_, [this](const std::string& peer) { acceptor_->NoteCancel(peer); }));
  builder.experimental().SetInterceptorCreators(std::move(gates));
  auto sink = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, *credentials);
  builder.RegisterService(&service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return InvalidArgument("the gRPC server did not start: check tls.certificate, tls.key and tls.client_ca");
  }
  SetHealth(false);
  acceptor_->Start(std::move(sink));
  return OkStatus();
}

Status Daemon::StartOps() {
  if (config_.ops.listen == "off") return OkStatus();
  StatusOr<std::unique_ptr<OpsHttp>> ops = OpsHttp::Start(
      config_.ops.listen,
      {.metrics = [this] { return MetricsText(); },
       .alive = [this] { return Alive(); },
       .ready = [this] { return Ready(); },
       .version_json = [] { return fmt::format("{{\"name\":\"invard\",\"version\":\"{}\"}}\n", kVersion); }});
  if (!ops.ok()) return ops.status();
  ops_ = *std::move(ops);
  return OkStatus();
}

void Daemon::LoadModel(const ModelLoader& loader, const std::function<void(const Status&)>& on_loaded) {
  const TimeNs begin = clock_.Now();
  StatusOr<ModelParts> parts = loader(config_);
  if (!parts.ok()) return on_loaded(parts.status());
  StatusOr<std::unique_ptr<ServedModel>> model = StartEngine(config_, *std::move(parts), clock_);
  if (!model.ok()) return on_loaded(model.status());
  model_ = *std::move(model);
  published_model_ = model_.get();
  service_.Serve(*model_);
  {
    MutexLock lock(drain_mu_);
    if (!draining_) SetHealth(true);
  }
  Logger("server")->info("serving model={} architecture={} numerics={} load_seconds={:.3f}", model_->parts.name,
                         model_->spec().architecture, model_->spec().numerics_id, ToSeconds(clock_.Now() - begin));
  on_loaded(OkStatus());
}

void Daemon::SetHealth(const bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  Check(health != nullptr, "the default health service is enabled");
  health->SetServingStatus("", serving);
  health->SetServingStatus(kServiceName, serving);
}

void Daemon::BeginDrain() {
  service_.BeginDrain();
  {
    MutexLock lock(drain_mu_);
    draining_ = true;
    SetHealth(false);
  }
  if (published_model_ != nullptr) published_model_.load()->engine->BeginDrain();
  Logger("server")->info("draining: {} calls open", service_.calls_open());
}

Status Daemon::Alive() {
  const ServedModel* model = published_model_;
  if (model == nullptr) return OkStatus();  // Loading is being alive.
  const engine::EngineStats stats = model->engine->Stats();
  // Paused requests wait for their readers, not for us.
  const bool has_work = stats.running + stats.waiting > stats.paused;
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
  if (quiet > std::chrono::nanoseconds(config_.health.stall_timeout).count()) {
    return Unavailable(fmt::format("requests wait and no step has ended for {:.1f} s", ToSeconds(quiet)));
  }
  return OkStatus();
}

Status Daemon::Ready() {
  if (draining_) return Unavailable("draining");
  if (published_model_ == nullptr) return Unavailable("loading");
  return Alive();
}

std::string Daemon::MetricsText() const {
  MetricsSnapshot snapshot;
  snapshot.draining = draining_;
  snapshot.connections_open = acceptor_->open_count();
  snapshot.calls_open = service_.calls_open();
  snapshot.request_bytes = service_.request_bytes();
  if (const ServedModel* model = published_model_) {
    snapshot.model = model->parts.name;
    snapshot.spec = model->spec();
    snapshot.engine = model->engine->Stats();
    snapshot.serving = !draining_;
  }
  return metrics_.Text(snapshot);
}

}  // namespace invar::server
