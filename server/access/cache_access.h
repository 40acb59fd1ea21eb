// Who may see, flush and fetch what of the cache: the one rule for AdminService, the page on the ops port and
// TransferService. With API tokens configured, an admin's token speaks for all tenants and any other one for its own;
// without, whoever reaches a port that only this machine can reach, and prefixes are also for who has a certificate.
// Threads: any; pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/access/auth.h"

namespace invar::server {

// The tenant that is meant where the caller asks for `wanted` (empty: all it may); nullopt: all tenants.
// Errors: PERMISSION_DENIED.
StatusOr<std::optional<std::string>> TenantsFor(const Caller& who, const std::string& wanted);

// The tenant whose prefix is meant: `wanted`, or the caller's own. Errors: PERMISSION_DENIED.
StatusOr<std::string> TenantOf(const Caller& who, const std::string& wanted);

// Whether `who` may have prefixes of `tenant`. Errors: PERMISSION_DENIED.
// A prefix tells nothing that its caller does not know, who has the tokens; how soon it comes tells whether it is
// cached. So a tenant's cache is that tenant's, an admin's, and that of other instances, which fetch for all.
Status MayFetch(const Caller& who, const std::string& tenant);

// The value of an HTTP authorization header as AuthenticateHeader takes it. Browsers ask for a name and a password and
// send "Basic BASE64(NAME:PASSWORD)": the password is the token, the name is not looked at. What cannot be understood
// becomes "", which is no token.
std::string BearerOf(std::string_view authorization);

}  // namespace invar::server
