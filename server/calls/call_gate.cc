// See call_gate.h.
#include "server/calls/call_gate.h"

#include <algorithm>
#include <utility>

namespace invar::server {
namespace {

// The caller's deadline and the configured longest life, whichever is earlier, on the engine's clock.
TimeNs DeadlineOf(const grpc::CallbackServerContext& context, const config::Duration request_timeout,
                  const TimeNs now) {
  const TimeNs own = now + std::chrono::nanoseconds(request_timeout).count();
  const auto caller = context.deadline();
  if (caller == std::chrono::system_clock::time_point::max()) return own;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(caller - std::chrono::system_clock::now());
  return std::min(own, now + std::min<TimeNs>(left.count(), kNever - now));
}

}  // namespace

CallGate::CallGate(const LiveConfig& config, const Authenticator& authenticator, Metrics& metrics, const Clock& clock)
    : config_(config),
      authenticator_(authenticator),
      metrics_(metrics),
      clock_(clock),
      stalled_readers_(std::chrono::nanoseconds(config.config()->limits.slow_reader_timeout).count()) {}

StatusOr<Caller> CallGate::Admit(const grpc::CallbackServerContext& context, const config::Config& config) const {
  StatusOr<Caller> caller = authenticator_.Authenticate(context);
  if (!caller.ok()) return caller.status();
  if (draining_) return Unavailable("the daemon is shutting down");
  if (model_ == nullptr) return Unavailable("the model is still loading");
  if (caller->known_by == KnownBy::kNothing) caller->known_by = KnownByPort(config.server.listen, config.tls.client_ca);
  return caller;
}

CallEntry CallGate::Enter(const grpc::CallbackServerContext& context, const Rpc rpc,
                          const google::protobuf::Message& request) {
  const std::shared_ptr<const config::Config> config = config_.config();
  StatusOr<Caller> caller = Admit(context, *config);
  const TimeNs now = clock_.Now();
  OpenCall open = open_calls_.Begin(
      {.tenant = caller.ok() ? caller->tenant : "", .rpc = rpc, .bytes = static_cast<int64_t>(request.SpaceUsedLong())},
      caller.ok() ? OkStatus() : caller.status(), *config);
  return {.at = now,
          .deadline = DeadlineOf(context, config->limits.request_timeout, now),
          .caller = caller.ok() ? *std::move(caller) : Caller(),
          .open = std::move(open)};
}

}  // namespace invar::server
