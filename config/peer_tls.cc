// See peer_tls.h.
#include "config/peer_tls.h"

#include <fmt/format.h>

#include <string>

#include "config/fields.h"

namespace invar::config {
namespace {

Status Refused(const PeerTls& peer, const std::string_view field, const std::string_view why) {
  const std::string path = fmt::format("{}.{}", peer.section, field);
  return InvalidArgument(fmt::format("{}: {}", path, why), path);
}

}  // namespace

Status ValidatePeerTls(const PeerTls& peer) {
  const bool has_files = !peer.ca.empty() || !peer.certificate.empty() || !peer.key.empty();
  if (!peer.tls && has_files) {
    return Refused(peer, "tls", "must be true where tls_ca, tls_certificate or tls_key is given");
  }
  if (peer.certificate.empty() != peer.key.empty()) {
    return Refused(peer, "tls_key", "give tls_certificate and tls_key, both or none");
  }
  return OkStatus();
}

Status ValidatePeerAddress(const PeerTls& peer, const std::string_view field, const std::string_view address) {
  if (peer.tls || peer.allow_insecure || IsLoopback(address)) return OkStatus();
  return Refused(peer, field,
                 fmt::format("{} is another machine: set {}.tls: true, or {}.allow_insecure: true", address,
                             peer.section, peer.section));
}

}  // namespace invar::config
