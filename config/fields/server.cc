// What is served, and who reaches it: model, ports, TLS, tokens.
#include <chrono>

#include "config/fields/sections.h"

namespace invar::config {

using std::chrono::milliseconds;
using std::chrono::minutes;

std::vector<Field> ServerFields() {
  return {
      {"version", IntKind{+[](Config& c) -> int64_t& { return c.version; }, 1, 1}, "Version of this schema."},
      {"model.path", StringKind{+[](Config& c) -> std::string& { return c.model.path; }, kPathBytesMax},
       "Folder of the model in Hugging Face layout; required to start."},
      {"model.name", StringKind{+[](Config& c) -> std::string& { return c.model.name; }, 256},
       "Name that requests and metrics use; empty: the folder's name."},
      {"server.listen", AddressKind{+[](Config& c) -> std::string& { return c.server.listen; }, false},
       "Address of the gRPC port; port 0 lets the system choose."},
      {"server.allow_insecure", BoolKind{+[](Config& c) -> bool& { return c.server.allow_insecure; }},
       "Listen beyond loopback although everybody there may call (neither auth.tokens nor tls.client_ca) or may read "
       "along (no TLS)."},
      {"server.connections_max", IntKind{+[](Config& c) -> int64_t& { return c.server.connections_max; }, 1, 100'000},
       "Most connections at once; further ones are closed at once. The limit of open files may lower it.",
       Takes::kOnReload},
      {"server.connections_per_address_max",
       IntKind{+[](Config& c) -> int64_t& { return c.server.connections_per_address_max; }, 1, 100'000},
       "Most connections at once from one IP address.", Takes::kOnReload},
      {"server.handshake_timeout",
       DurationKind{+[](Config& c) -> Duration& { return c.server.handshake_timeout; }, milliseconds(100), minutes(2)},
       "A connection that has not finished its HTTP/2 and TLS handshake by then is closed."},
      {"server.concurrent_streams_max",
       IntKind{+[](Config& c) -> int64_t& { return c.server.concurrent_streams_max; }, 1, 100'000},
       "Most calls at once on one connection."},
      {"server.request_bytes_max",
       BytesKind{+[](Config& c) -> int64_t& { return c.server.request_bytes_max; }, kKiB, kGiB},
       "Largest request message."},
      {"server.resets_burst", IntKind{+[](Config& c) -> int64_t& { return c.server.resets_burst; }, 1, 1'000'000},
       "Cancelled calls one connection may have beyond the rate below before it is closed (HTTP/2 rapid reset).",
       Takes::kOnReload},
      {"server.resets_per_second",
       IntKind{+[](Config& c) -> int64_t& { return c.server.resets_per_second; }, 1, 1'000'000},
       "Cancelled calls a second that one connection may have for ever. A client that gives a call up at its deadline "
       "cancels it.",
       Takes::kOnReload},
      {"tls.certificate", StringKind{+[](Config& c) -> std::string& { return c.tls.certificate; }, kPathBytesMax},
       "PEM file of the server's certificate chain; empty: no TLS.", Takes::kOnReload},
      {"tls.key", StringKind{+[](Config& c) -> std::string& { return c.tls.key; }, kPathBytesMax},
       "PEM file of the certificate's private key.", Takes::kOnReload},
      {"tls.client_ca", StringKind{+[](Config& c) -> std::string& { return c.tls.client_ca; }, kPathBytesMax},
       "PEM file of the authorities that sign client certificates; given: every client must show one.",
       Takes::kOnReload},
      {"auth.tokens", TokensKind{+[](Config& c) -> std::vector<ApiToken>& { return c.auth.tokens; }},
       "API tokens as {tenant, sha256 of the token, admin: true or false, instance: true or false}; given: every call "
       "needs `authorization: Bearer TOKEN`. What all tenants have in the cache is shown and flushed for tokens with "
       "`admin: true` only; those with `instance: true` are of other instances, which fetch prefixes for all tenants. "
       "Both are false where they are left out. In --set and the environment: `TENANT:SHA256`, `TENANT:SHA256:admin` "
       "or "
       "`TENANT:SHA256:instance`, separated by commas.",
       Takes::kOnReload},
      {"auth.health_exempt", BoolKind{+[](Config& c) -> bool& { return c.auth.health_exempt; }},
       "Answer grpc.health.v1 without a token, for probes that cannot send one.", Takes::kOnReload},
      {"ops.listen", AddressKind{+[](Config& c) -> std::string& { return c.ops.listen; }, true},
       "Address of the HTTP port with /metrics, /livez, /readyz, /version, /configz and /cache; `off` closes it."},
      {"ops.allow_insecure", BoolKind{+[](Config& c) -> bool& { return c.ops.allow_insecure; }},
       "Open the HTTP port beyond loopback: it has neither TLS nor tokens, and shows the configuration and the load to "
       "everybody who reaches it."},
  };
}

}  // namespace invar::config
