// Who calls: API tokens that name a tenant. Tokens are known by SHA-256 only and compared in constant time, all of them
// every time. One interceptor stands before all methods, reflection and health included: deny by default.
// gRPC 1.51 cannot end a call from a server interceptor, so a denied call is emptied there (no message leaves, the
// status becomes UNAUTHENTICATED) while calls of our own services pass the CallGate, which asks first, and do not
// begin.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fingerprint.h"
#include "base/mutex.h"
#include "base/status.h"
#include "config/config.h"

namespace invar::server {

// What tells one caller from anybody.
enum class KnownBy {
  kNothing,
  kToken,
  kThisMachine,  // No tokens are configured, and the port can only be reached from this machine;
  kCertificate,  // or wants a certificate of an authority that is configured.
};
// Of a port where no tokens are configured. `client_ca`: empty where it wants no certificates.
KnownBy KnownByPort(std::string_view listen, std::string_view client_ca);

// Who calls.
struct Caller {
  std::string tenant{};   // "": no tokens are configured.
  bool admin = false;     // The token says so,
  bool instance = false;  // and this.
  KnownBy known_by = KnownBy::kNothing;
};

// What follows "SCHEME " in the value of an authorization header, whose schemes have no case (RFC 9110, 11.1); nothing
// where it is of another scheme.
std::optional<std::string_view> AfterScheme(std::string_view header, std::string_view scheme);

class Authenticator {
 public:
  explicit Authenticator(const config::Config::Auth& config);

  // Calls from now on are judged by `config`; open ones go on. Threads: any.
  void Replace(const config::Config::Auth& config);
  // Known by its token, or by nothing where none are configured. Errors: UNAUTHENTICATED. Threads: any.
  StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const;
  // As above, from the value of the `authorization` header.
  StatusOr<Caller> AuthenticateHeader(std::string_view header) const;
  // Whether calls of `method` need no token (auth.health_exempt).
  bool IsExempt(std::string_view method) const;
  // Whether tokens are configured.
  bool wants_tokens() const { return !rules()->entries.empty(); }

 private:
  struct Entry {
    Caller caller;
    Digest digest;
  };
  struct Rules {
    std::vector<Entry> entries;
    bool health_exempt = false;
  };
  std::shared_ptr<const Rules> rules() const;

  mutable Mutex mu_;
  std::shared_ptr<const Rules> rules_ GUARDED_BY(mu_);  // Shared with the calls that are being judged.
};

// Runs before every call: authentication, and a notice of each call that was cancelled (with its peer).
class InterceptorFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  using CancelNotice = std::function<void(const std::string& peer)>;
  // Requires: `authenticator` outlives the server.
  InterceptorFactory(const Authenticator& authenticator, CancelNotice on_cancel);
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override;

 private:
  const Authenticator& authenticator_;
  const CancelNotice on_cancel_;
};

}  // namespace invar::server
