// One line a kind, nearest first.
#include <fmt/format.h>

#include <utility>

#include "base/file.h"
#include "cache/make_tiers.h"
#include "cache/tiers/stores.h"
#include "cache/tiers/threaded_tier.h"

namespace invar::cache {
namespace {

using TiersConfig = config::Config::Cache::Tiers;
using StorePtr = std::unique_ptr<TierStore>;  // Null: not configured.

StatusOr<StorePtr> MakeRam(const TiersConfig& config, const TierContext&) {
  return config.ram.budget == 0 ? StorePtr() : MakeRamStore(config.ram.budget);
}

StatusOr<StorePtr> MakeDisk(const TiersConfig& config, const TierContext& context) {
  if (config.disk.path.empty()) return StorePtr();
  return MakeDiskStore({.path = config.disk.path,
                        .budget_bytes = config.disk.budget,
                        .store_id = context.store_id,
                        .direct = config.disk.direct},
                       context.files);
}

StatusOr<std::string> ReadSecret(const std::string& path) {
  StatusOr<std::string> line = ReadSecretLine(path);
  if (line.ok() && line->empty()) return InvalidArgument(fmt::format("{}: wants a secret in its first line", path));
  return line;
}

StatusOr<StorePtr> MakeRemote(const TiersConfig& config, const TierContext& context) {
  const TiersConfig::Remote& remote = config.remote;
  if (remote.address.empty()) return StorePtr();
  const StatusOr<std::string> secret = ReadSecret(remote.hmac_secret_file);
  if (!secret.ok()) return secret.status();
  RemoteOptions options{.address = remote.address,
                        .username = remote.username,
                        .secret = *secret,
                        .key_prefix = remote.key_prefix,
                        .store_id = context.store_id,
                        .ttl_ms = remote.ttl.count()};
  if (!remote.password_file.empty()) {
    StatusOr<std::string> password = ReadSecret(remote.password_file);
    if (!password.ok()) return password.status();
    options.password = *std::move(password);
  }
  if (remote.tls) {
    options.tls = TlsOptions{.ca = remote.tls_ca, .certificate = remote.tls_certificate, .key = remote.tls_key};
  }
  return MakeRespStore(std::move(options), context.clock);
}

constexpr StatusOr<StorePtr> (*kKinds[])(const TiersConfig&, const TierContext&) = {MakeRam, MakeDisk, MakeRemote};

}  // namespace

StatusOr<std::vector<std::unique_ptr<Tier>>> MakeTiers(const TiersConfig& config, const TierContext& context) {
  std::vector<std::unique_ptr<Tier>> tiers;
  for (const auto make : kKinds) {
    StatusOr<StorePtr> store = make(config, context);
    if (!store.ok()) return store.status();
    if (*store == nullptr) continue;
    tiers.push_back(
        MakeThreadedTier(*std::move(store), context.clock,
                         {.threads = static_cast<int>(config.threads),
                          .limits = {.queue_max = config.queue_max, .queue_bytes_max = config.queue_bytes_max}}));
  }
  return tiers;
}

}  // namespace invar::cache
