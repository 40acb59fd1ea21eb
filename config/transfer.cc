// See transfer.h.
#include "config/transfer.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/fields.h"
#include "config/peer_tls.h"

namespace invar::config {
namespace {

constexpr char kProducers[] = "transfer.producers";
constexpr std::string_view kByDns = "dns:";

bool IsName(const std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](const char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

std::string_view Trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

Status Refused(const std::string& field, const std::string_view why) {
  return InvalidArgument(fmt::format("transfer.{}: {}", field, why), "transfer." + field);
}

}  // namespace

bool ServesPrefixes(const Config::Transfer& transfer) { return transfer.role == "prefill" || transfer.role == "both"; }
bool FetchesPrefixes(const Config::Transfer& transfer) { return transfer.role == "decode" || transfer.role == "both"; }

StatusOr<std::vector<Producer>> ParseProducers(std::string_view text) {
  std::vector<Producer> producers;
  if (Trimmed(text).empty()) return producers;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view entry = Trimmed(text.substr(0, comma));
    const size_t equals = entry.find('=');
    const std::string_view name = entry.substr(0, equals);
    if (equals == std::string_view::npos || !IsName(name)) {
      return InvalidArgument(
          fmt::format(
              "{}: wants NAME=HOST:PORT or NAME=dns:HOST:PORT, a name of letters, digits, '-', '_' or '.', found "
              "'{}'",
              kProducers, entry),
          kProducers);
    }
    std::string_view address = entry.substr(equals + 1);
    const bool by_dns = address.starts_with(kByDns);
    if (by_dns) address.remove_prefix(kByDns.size());
    const StatusOr<HostPort> parsed = ParseAddress(address);
    if (!parsed.ok() || parsed->port == 0) {
      return InvalidArgument(fmt::format("{}: '{}' is no HOST:PORT", kProducers, address), kProducers);
    }
    if (std::ranges::any_of(producers, [&](const Producer& other) { return other.name == name; })) {
      return InvalidArgument(fmt::format("{}: '{}' stands there twice", kProducers, name), kProducers);
    }
    producers.push_back(
        {.name = std::string(name), .address = std::string(address), .dns_host = by_dns ? parsed->host : ""});
    if (comma == std::string_view::npos) return producers;
    text.remove_prefix(comma + 1);
  }
}

Status ValidateTransfer(const Config& config) {
  const Config::Transfer& transfer = config.transfer;
  const StatusOr<std::vector<Producer>> producers = ParseProducers(transfer.producers);
  if (!producers.ok()) return producers.status();
  const PeerTls peer = PeerTlsOf("transfer", transfer);
  if (Status s = ValidatePeerTls(peer); !s.ok()) return s;
  if (!transfer.name.empty()) {
    if (!IsName(transfer.name)) return Refused("name", "wants letters, digits, '-', '_' or '.'");
    if (!ServesPrefixes(transfer)) return Refused("name", "is for the roles prefill and both");
    if (transfer.hmac_secret_file.empty()) return Refused("hmac_secret_file", "is required with a name");
  }
  if (!transfer.profile.empty() && transfer.role == "none") return Refused("profile", "is for roles other than none");
  if (!transfer.point.empty() && !FetchesPrefixes(transfer))
    return Refused("point", "is for the roles decode and both");
  if (!transfer.point.empty() && transfer.profile.empty()) return Refused("point", "is of a profile: give one");
  if (transfer.verify != "here" && !FetchesPrefixes(transfer)) {
    return Refused("verify", "all but here is for the roles decode and both");
  }
  if (transfer.verify == "drafted") {
    const auto& speculation = config.engine.speculation;
    if (speculation.draft_tokens_max == 0)
      return Refused("verify", "drafted needs engine.speculation.draft_tokens_max");
    if (!speculation.slow_tier.path.empty()) {
      return Refused("verify", "drafted has no share of the memory that engine.speculation.slow_tier divides");
    }
  }
  if (transfer.mode == "any" && transfer.profile.empty()) return Refused("mode", "any needs a profile");
  if (!FetchesPrefixes(transfer)) {
    return producers->empty() ? OkStatus() : Refused("producers", "are for the roles decode and both");
  }
  if (producers->empty()) return Refused("producers", "the roles decode and both need one at least");
  if (!config.cache.enabled)
    return Refused("role", "what is fetched goes into the prefix cache: cache.enabled must be true");
  for (const Producer& producer : *producers) {
    if (Status s = ValidatePeerAddress(peer, "producers", producer.address); !s.ok()) return s;
  }
  return OkStatus();
}

}  // namespace invar::config
