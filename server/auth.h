// Who calls: API tokens that name a tenant. Tokens are known by SHA-256 only and compared in constant time, all of them
// every time. One interceptor stands before all methods, reflection and health included: deny by default.
// gRPC 1.51 cannot end a call from a server interceptor, so a denied call is emptied there (no message leaves, the
// status becomes UNAUTHENTICATED) while our own services ask Authenticate first and do not begin the work.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fingerprint.h"
#include "base/mutex.h"
#include "base/status.h"
#include "config/config.h"

namespace invar::server {

// Who calls.
struct Caller {
  std::string tenant;     // "": no tokens are configured.
  bool admin = false;     // The token says so,
  bool instance = false;  // and this.
};

class Authenticator {
 public:
  explicit Authenticator(const config::Config::Auth& config);

  // Calls from now on are judged by `config`; open ones go on. Threads: any.
  void Replace(const config::Config::Auth& config);
  // Errors: UNAUTHENTICATED. Threads: any.
  StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context, std::string_view method) const;
  // As above, from the value of the `authorization` header.
  StatusOr<Caller> AuthenticateHeader(std::string_view header) const;
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
class GateFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  using CancelNotice = std::function<void(const std::string& peer)>;
  // Requires: `authenticator` outlives the server.
  GateFactory(const Authenticator& authenticator, CancelNotice on_cancel);
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override;

 private:
  const Authenticator& authenticator_;
  const CancelNotice on_cancel_;
};

}  // namespace invar::server
