// Who may see and flush what of the cache: the one rule for AdminService and the page on the ops port. With API tokens
// configured, an admin's token speaks for all tenants and any other one for its own; without, whoever reaches a port
// that only this machine can reach. Threads: any; pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/auth.h"

namespace invar::server {

struct AdminCaller {
  Caller caller;
  bool by_token = false;     // Tokens are configured, and the caller has shown one.
  bool is_loopback = false;  // The port can only be reached from this machine.
};

// The tenant that is meant where the caller asks for `wanted` (empty: all it may); nullopt: all tenants.
// Errors: PERMISSION_DENIED.
StatusOr<std::optional<std::string>> TenantsFor(const AdminCaller& who, const std::string& wanted);

// The tenant whose prefix is meant: `wanted`, or the caller's own. Errors: PERMISSION_DENIED.
StatusOr<std::string> TenantOf(const AdminCaller& who, const std::string& wanted);

// The value of an HTTP authorization header as AuthenticateHeader takes it. Browsers ask for a name and a password and
// send "Basic BASE64(NAME:PASSWORD)": the password is the token, the name is not looked at. What cannot be understood
// becomes "", which is no token.
std::string BearerOf(std::string_view authorization);

}  // namespace invar::server
