// Daemon: lifetime and wiring of everything invard runs.
//   Start: ports open, health NOT_SERVING, the model loads on a thread of its own
//   loaded: health SERVING                  BeginDrain: NOT_SERVING at once, new calls UNAVAILABLE, running ones go on
//   Persist: what is left ends with UNAVAILABLE, the tiers store what only memory holds
//   destructor: what is left ends with UNAVAILABLE; ports close
// Threads: Start, Reload, BeginDrain, WaitIdle, destructor from one thread; Persist from any, before the destructor.
#pragma once

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "config/load.h"
#include "server/access/auth.h"
#include "server/access/live_config.h"
#include "server/access/tls_files.h"
#include "server/calls/call_gate.h"
#include "server/calls/served_model.h"
#include "server/metrics/metrics.h"
#include "server/net/connection_acceptor.h"
#include "server/net/ops_http.h"
#include "server/net/port_probe.h"
#include "server/services/admin_service.h"
#include "server/services/cache_view.h"
#include "server/services/generate_service.h"
#include "server/services/transfer_service.h"

namespace invar::server {

class Daemon {
 public:
  // What the destructor gives calls that outlive the engine (a reader that never takes its status).
  static constexpr std::chrono::milliseconds kShutdownGrace{300};

  // `on_loaded` is called once, on the loading thread, when the model serves or has failed to load.
  // Errors: UNAVAILABLE (a port), INVALID_ARGUMENT (TLS files). Requires: `clock` outlives the daemon.
  static StatusOr<std::unique_ptr<Daemon>> Start(config::Loaded config, ModelLoader loader, const Clock& clock,
                                                 std::function<void(const Status&)> on_loaded);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  const std::string& grpc_address() const { return acceptor_->address(); }
  std::string ops_address() const { return ops_ != nullptr ? ops_->address() : "off"; }

  // Takes over of `wanted` what can change in a running process; logs what changed and what needs a restart.
  // Errors: INVALID_ARGUMENT and those of reading the TLS files; nothing has changed then.
  Status Reload(const config::Loaded& wanted);
  std::shared_ptr<const config::Config> config() const { return live_config_.config(); }

  // Whether the engine makes progress where there is work, and the gRPC port reacts. Progress is judged between two
  // questions. Threads: any.
  Status Alive();

  void BeginDrain();
  // True when no call is open any more; waits at most `timeout`.
  bool WaitIdle(std::chrono::milliseconds timeout) { return gate_.WaitIdle(timeout); }

  // Lets the tiers of the prefix cache store what only memory holds, for drain.persist_timeout at most and no longer
  // than until `hurry` is asked for. A model that is still loading has nothing. Requires: BeginDrain.
  void Persist(const std::stop_token& hurry);

  // Null while loading. For tests that look at the engine.
  ServedModel* model() { return gate_.model(); }
  std::string MetricsText() const;

 private:
  Daemon(config::Loaded config, const Clock& clock);

  Status StartGrpc();
  Status StartOps();
  void LoadModel(const ModelLoader& loader, const std::function<void(const Status&)>& on_loaded);
  void SetHealth(bool serving);
  Status EngineAlive();
  Status PortAlive() const;
  Status Ready();
  // Never waits: what the engine has to say is in the next answer.
  PageAnswer CachePage(const PageRequest& request);
  // OK, or why the caller does not see the page. Errors: UNAUTHENTICATED, PERMISSION_DENIED.
  Status MaySeeCachePage(const PageRequest& request) const;

  // Set at construction.
  LiveConfig live_config_;
  const Clock& clock_;
  Metrics metrics_;
  Authenticator authenticator_;
  std::unique_ptr<TlsFiles> tls_;

  std::unique_ptr<ServedModel> model_;  // Loading thread, then read-only: others take the gate's.
  Mutex drain_mu_;  // Over draining and what health says of it: the end of loading never overtakes a drain.

  Mutex watch_mu_;
  int64_t watched_steps_ GUARDED_BY(watch_mu_) = -1;  // Step count when work was last seen moving; -1: no work.
  TimeNs watched_since_ GUARDED_BY(watch_mu_) = 0;

  grpc::ResourceQuota receive_quota_{"invard"};
  std::unique_ptr<ConnectionAcceptor> acceptor_;
  CallGate gate_;
  GenerateService generate_service_;
  CacheView cache_view_;
  AdminService admin_service_;
  TransferService transfer_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<PortProbe> port_probe_;  // Null: not wanted.
  std::unique_ptr<OpsHttp> ops_;
  std::thread loader_;
};

}  // namespace invar::server
