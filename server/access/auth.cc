// See auth.h.
#include "server/access/auth.h"

#include <strings.h>

#include <atomic>
#include <charconv>
#include <utility>

#include "config/fields.h"
#include "server/wire/grpc_status.h"

namespace invar::server {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

constexpr std::string_view kHealthMethods = "/grpc.health.v1.Health/";
constexpr size_t kTokenBytesMax = 4096;

Digest DigestFromHex(const std::string& hex) {
  Digest digest{};
  for (size_t i = 0; i < digest.size(); ++i) {
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, digest[i], 16);
  }
  return digest;
}

Status TokenRequired() {
  // One message for absent, malformed and wrong: a caller learns nothing from the difference.
  return Status(StatusCode::kUnauthenticated, "a valid API token is required: authorization: Bearer TOKEN");
}

class Interceptor final : public grpc::experimental::Interceptor {
 public:
  Interceptor(grpc::experimental::ServerRpcInfo& info, const Authenticator& authenticator,
              const InterceptorFactory::CancelNotice& on_cancel)
      : info_(info), authenticator_(authenticator), on_cancel_(on_cancel) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      denied_ = !authenticator_.IsExempt(info_.method()) && !authenticator_.Authenticate(*info_.server_context()).ok();
    }
    if (denied_) {
      SpoilHealthRequest(*methods);
      Empty(*methods);
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) status_sent_ = true;
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_CLOSE) && Cancelled()) {
      on_cancel_(info_.server_context()->peer());
    }
    methods->Proceed();
  }

 private:
  // A reset call may still get a status from its handler, so the context is asked. Not on the synchronous API, which
  // reflection uses: there the question runs the interceptors again, without end; no status means cancelled.
  bool Cancelled() const {
    const bool synchronous = std::string_view(info_.method()).starts_with("/grpc.reflection.");
    return synchronous ? !status_sent_ : info_.server_context()->IsCancelled();
  }

  // Health's Watch would stay open for ever and never send a status. Its handler, which takes raw bytes, ends a call
  // whose request it cannot parse.
  void SpoilHealthRequest(InterceptorBatchMethods& methods) {
    const bool is_health = std::string_view(info_.method()).starts_with(kHealthMethods);
    if (!is_health || !methods.QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) return;
    if (void* request = methods.GetRecvMessage()) {
      grpc::Slice no_message("\xff");
      *static_cast<grpc::ByteBuffer*>(request) = grpc::ByteBuffer(&no_message, 1);
    }
  }

  static void Empty(InterceptorBatchMethods& methods) {
    if (methods.QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      // An empty message instead of none: gRPC counts on a write being a write.
      grpc::Slice nothing;
      if (grpc::ByteBuffer* message = methods.GetSerializedSendMessage()) *message = grpc::ByteBuffer(&nothing, 1);
    }
    if (methods.QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      methods.ModifySendStatus(ToGrpcStatus(TokenRequired()));
    }
  }

  grpc::experimental::ServerRpcInfo& info_;
  const Authenticator& authenticator_;
  const InterceptorFactory::CancelNotice& on_cancel_;
  // Hooks of sending and of closing may run on two threads.
  std::atomic<bool> denied_ = true;  // Until the metadata has been seen.
  std::atomic<bool> status_sent_ = false;
};

}  // namespace

std::optional<std::string_view> AfterScheme(const std::string_view header, const std::string_view scheme) {
  const size_t length = scheme.size();
  if (header.size() <= length || header[length] != ' ') return std::nullopt;
  if (strncasecmp(header.data(), scheme.data(), length) != 0) return std::nullopt;
  return header.substr(length + 1);
}

KnownBy KnownByPort(const std::string_view listen, const std::string_view client_ca) {
  if (config::IsLoopback(listen)) return KnownBy::kThisMachine;
  return client_ca.empty() ? KnownBy::kNothing : KnownBy::kCertificate;
}

Authenticator::Authenticator(const config::Config::Auth& config) { Replace(config); }

void Authenticator::Replace(const config::Config::Auth& config) {
  auto rules = std::make_shared<Rules>();
  rules->health_exempt = config.health_exempt;
  for (const config::ApiToken& token : config.tokens) {
    rules->entries.push_back({.caller = {.tenant = token.tenant,
                                         .admin = token.admin,
                                         .instance = token.instance,
                                         .known_by = KnownBy::kToken},
                              .digest = DigestFromHex(token.sha256)});
  }
  MutexLock lock(mu_);
  rules_ = std::move(rules);
}

std::shared_ptr<const Authenticator::Rules> Authenticator::rules() const {
  MutexLock lock(mu_);
  return rules_;
}

bool Authenticator::IsExempt(const std::string_view method) const {
  return method.starts_with(kHealthMethods) && rules()->health_exempt;
}

StatusOr<Caller> Authenticator::Authenticate(const grpc::ServerContextBase& context) const {
  if (!wants_tokens()) return Caller();
  const auto& metadata = context.client_metadata();
  // Two headers could be read differently by a proxy in front: exactly one.
  if (metadata.count("authorization") != 1) return TokenRequired();
  const grpc::string_ref header = metadata.find("authorization")->second;
  return AuthenticateHeader({header.data(), header.size()});
}

StatusOr<Caller> Authenticator::AuthenticateHeader(const std::string_view header) const {
  const std::shared_ptr<const Rules> rules = this->rules();
  if (rules->entries.empty()) return Caller();
  const std::optional<std::string_view> token = AfterScheme(header, "Bearer");
  if (!token.has_value() || header.size() > kTokenBytesMax) return TokenRequired();
  const Digest digest = Sha256(*token);
  const Entry* found = nullptr;
  for (const Entry& entry : rules->entries) {  // All of them, whatever is found: the time tells nothing.
    if (EqualConstantTime(entry.digest, digest)) found = &entry;
  }
  if (found == nullptr) return TokenRequired();
  return found->caller;
}

InterceptorFactory::InterceptorFactory(const Authenticator& authenticator, CancelNotice on_cancel)
    : authenticator_(authenticator), on_cancel_(std::move(on_cancel)) {}

grpc::experimental::Interceptor* InterceptorFactory::CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) {
  return new Interceptor(*info, authenticator_, on_cancel_);  // gRPC owns it.
}

}  // namespace invar::server
