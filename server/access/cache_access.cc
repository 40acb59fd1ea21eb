// See cache_access.h.
#include "server/access/cache_access.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <optional>
#include <vector>

namespace invar::server {
namespace {

// Of a header: far above any token.
constexpr size_t kHeaderBytesMax = 8192;

// `reason`: what would change it, as a word.
Status Denied(const char* reason, std::string message) {
  return Status(StatusCode::kPermissionDenied, std::move(message)).WithReason(reason);
}

constexpr char kCallerUnknown[] = "CALLER_UNKNOWN";

// Errors: PERMISSION_DENIED where nobody can be told from anybody.
Status KnowsCallers(const Caller& who) {
  if (who.known_by == KnownBy::kToken || who.known_by == KnownBy::kThisMachine) return OkStatus();
  return Denied(
      kCallerUnknown,
      "the cache is shown and flushed for API tokens, or on a port that only this machine can reach: configure "
      "auth.tokens, one of them with admin: true");
}

Status NotYours(const Caller& who, const std::string& wanted) {
  return Denied(
      "ADMIN_TOKEN_REQUIRED",
      fmt::format("this token speaks for tenant '{}', not for '{}': use a token with admin: true", who.tenant, wanted));
}

bool SpeaksForAll(const Caller& who) { return who.known_by != KnownBy::kToken || who.admin; }

}  // namespace

StatusOr<std::optional<std::string>> TenantsFor(const Caller& who, const std::string& wanted) {
  if (Status s = KnowsCallers(who); !s.ok()) return s;
  if (SpeaksForAll(who)) return wanted.empty() ? std::nullopt : std::optional(wanted);
  if (!wanted.empty() && wanted != who.tenant) return NotYours(who, wanted);
  return std::optional(who.tenant);
}

StatusOr<std::string> TenantOf(const Caller& who, const std::string& wanted) {
  if (Status s = KnowsCallers(who); !s.ok()) return s;
  if (wanted.empty()) return who.tenant;
  if (!SpeaksForAll(who) && wanted != who.tenant) return NotYours(who, wanted);
  return wanted;
}

Status MayFetch(const Caller& who, const std::string& tenant) {
  switch (who.known_by) {
    case KnownBy::kToken:
      if (who.admin || who.instance || who.tenant == tenant) return OkStatus();
      return Denied("INSTANCE_TOKEN_REQUIRED",
                    fmt::format("this token speaks for tenant '{}', not for '{}': use one with instance: true",
                                who.tenant, tenant));
    case KnownBy::kThisMachine:
    case KnownBy::kCertificate:
      return OkStatus();
    case KnownBy::kNothing:
      break;
  }
  return Denied(kCallerUnknown, "prefixes are for callers that are known: configure auth.tokens or tls.client_ca here");
}

std::string BearerOf(const std::string_view authorization) {
  const std::optional<std::string_view> basic = AfterScheme(authorization, "Basic");
  if (!basic.has_value()) return std::string(authorization);
  const std::string_view code = *basic;
  if (code.empty() || code.size() % 4 != 0 || code.size() > kHeaderBytesMax) return {};
  std::vector<unsigned char> bytes(code.size() / 4 * 3);
  const int count =
      EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(code.data()), static_cast<int>(code.size()));
  if (count < 0) return {};
  // The decoder counts padding as bytes.
  const size_t padding = code.ends_with("==") ? 2 : code.ends_with("=") ? 1 : 0;
  const std::string text(bytes.begin(), bytes.begin() + count - static_cast<std::ptrdiff_t>(padding));
  const size_t colon = text.find(':');
  return colon == std::string::npos ? std::string() : "Bearer " + text.substr(colon + 1);
}

}  // namespace invar::server
