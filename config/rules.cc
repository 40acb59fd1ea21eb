// Rules between fields: what makes a configuration of valid values one that may not start.
#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>

#include "config/fields.h"
#include "config/peer_tls.h"
#include "config/transfer.h"

namespace invar::config {
namespace {

Status ValidateRemoteTier(const Config::Cache::Tiers::Remote& remote) {
  const auto refused = [](const std::string& name, const std::string_view why) {
    const std::string path = "cache.tiers.remote." + name;
    return InvalidArgument(fmt::format("{}: {}", path, why), path);
  };
  if (remote.address.empty()) return OkStatus();
  const bool is_unix = remote.address.starts_with("unix:/");
  if (!is_unix && !ParseAddress(remote.address).ok()) return refused("address", "wants HOST:PORT or unix:/PATH");
  if (remote.hmac_secret_file.empty()) return refused("hmac_secret_file", "is required with an address");
  if (!remote.username.empty() && remote.password_file.empty()) return refused("username", "needs password_file");
  if (remote.tls && is_unix) return refused("tls", "is for addresses HOST:PORT");
  const PeerTls peer = PeerTlsOf("cache.tiers.remote", remote);
  if (Status s = ValidatePeerTls(peer); !s.ok()) return s;
  return is_unix ? OkStatus() : ValidatePeerAddress(peer, "address", remote.address);
}

// What other machines reach is closed to strangers and to listeners on the way, or says openly that it is not.
Status ValidateExposure(const Config& config) {
  const auto refused = [](const std::string& field, const std::string& address, const std::string& why) {
    return InvalidArgument(fmt::format("{}: '{}' can be reached from other machines{}", field, address, why), field);
  };
  const std::string& listen = config.server.listen;
  if (!IsLoopback(listen) && !config.server.allow_insecure) {
    const bool has_tls = !config.tls.certificate.empty();
    const bool knows_callers = !config.auth.tokens.empty() || !config.tls.client_ca.empty();
    const std::string openly = ", or say openly that the network is the fence: server.allow_insecure: true";
    if (!has_tls && !knows_callers) {
      return refused("server.listen", listen,
                     ": configure tls.certificate and tls.key, and auth.tokens or tls.client_ca" + openly);
    }
    if (!has_tls) {
      return refused("server.listen", listen,
                     " and auth.tokens would travel in plain text: configure tls.certificate and tls.key" + openly);
    }
    if (!knows_callers) {
      return refused("server.listen", listen,
                     " and everybody there may call: a certificate of the server keeps nobody out; configure "
                     "auth.tokens or tls.client_ca" +
                         openly);
    }
  }
  const std::string& ops = config.ops.listen;
  if (ops != "off" && !IsLoopback(ops) && !config.ops.allow_insecure) {
    return refused("ops.listen", ops,
                   ", without TLS and without tokens: listen on loopback, set `off`, or say openly that the network is "
                   "the fence: ops.allow_insecure: true");
  }
  return OkStatus();
}

}  // namespace

Status ValidateTogether(const Config& config) {
  if (config.tls.certificate.empty() != config.tls.key.empty()) {
    return InvalidArgument("tls.certificate and tls.key: give both or none", "tls.key");
  }
  if (!config.tls.client_ca.empty() && config.tls.certificate.empty()) {
    return InvalidArgument("tls.client_ca: needs tls.certificate and tls.key", "tls.client_ca");
  }
  if (Status s = ValidateExposure(config); !s.ok()) return s;
  const bool chosen_by_the_system = config.server.listen.ends_with(":0");
  if (config.ops.listen == config.server.listen && !chosen_by_the_system) {
    return InvalidArgument(
        fmt::format("ops.listen: '{}' is server.listen already: give another port, or `off`", config.ops.listen),
        "ops.listen");
  }
  if (config.engine.prefill_chunk_tokens > config.engine.batch_tokens) {
    return InvalidArgument(fmt::format("engine.prefill_chunk_tokens: {} exceeds engine.batch_tokens {}",
                                       config.engine.prefill_chunk_tokens, config.engine.batch_tokens),
                           "engine.prefill_chunk_tokens");
  }
  if (config.engine.running_max > config.engine.batch_tokens) {
    return InvalidArgument(fmt::format("engine.running_max: {} exceeds engine.batch_tokens {}: a step must hold one "
                                       "token of every running request",
                                       config.engine.running_max, config.engine.batch_tokens),
                           "engine.running_max");
  }
  if (Status s = ValidateRemoteTier(config.cache.tiers.remote); !s.ok()) return s;
  if (Status s = ValidateTransfer(config); !s.ok()) return s;
  std::set<std::string_view> hashes;
  for (const ApiToken& token : config.auth.tokens) {
    if (!hashes.insert(token.sha256).second) {
      return InvalidArgument(fmt::format("auth.tokens: tenant '{}' repeats the token of another entry", token.tenant),
                             "auth.tokens");
    }
  }
  return OkStatus();
}

}  // namespace invar::config
