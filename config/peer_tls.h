// Rules for connections that we open to others (a remote tier, producers of prefixes): their sections have the same
// fields for TLS, and nothing goes to another machine in plain text unless that is said openly.
#pragma once

#include <string_view>

#include "base/status.h"

namespace invar::config {

struct PeerTls {
  std::string_view section;  // "transfer"
  bool tls = false;
  std::string_view ca;
  std::string_view certificate;
  std::string_view key;
  bool allow_insecure = false;
};

// Requires: `section` outlives what is given.
template <typename Section>
PeerTls PeerTlsOf(const std::string_view name, const Section& section) {
  return {.section = name,
          .tls = section.tls,
          .ca = section.tls_ca,
          .certificate = section.tls_certificate,
          .key = section.tls_key,
          .allow_insecure = section.allow_insecure};
}

// What holds between the fields themselves. Errors: INVALID_ARGUMENT naming the field, as below.
Status ValidatePeerTls(const PeerTls& peer);

// Whether `address`, HOST:PORT out of `field`, may be connected to.
Status ValidatePeerAddress(const PeerTls& peer, std::string_view field, std::string_view address);

}  // namespace invar::config
