// One reactor a call. A Generate call lives from its arrival to OnDone; its TokenStream is shared with the engine,
// which may end later.
#include "server/generate_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace invar::server {
namespace {

// Two: one large text does not keep the small ones waiting, and on a busy machine more would only take turns.
constexpr int kPreparerThreads = 2;
constexpr size_t kPreparingMax = 4096;
// One entry a stream at most: above any number of streams the connection limits allow.
constexpr size_t kWriterTasksMax = size_t{1} << 30;

// The caller's deadline and the configured longest life, whichever is earlier, on the engine's clock.
TimeNs DeadlineOf(const grpc::CallbackServerContext& context, const config::Duration request_timeout,
                  const Clock& clock) {
  const TimeNs now = clock.Now();
  const TimeNs own = now + std::chrono::nanoseconds(request_timeout).count();
  const auto caller = context.deadline();
  if (caller == std::chrono::system_clock::time_point::max()) return own;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(caller - std::chrono::system_clock::now());
  return std::min(own, now + std::min<TimeNs>(left.count(), kNever - now));
}

}  // namespace

// --- Generate ---

class GenerateService::GenerateCall final : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                                            public MessageWriter {
 public:
  GenerateCall(GenerateService& service, const TimeNs arrived) : service_(service), arrived_(arrived) {
    service_.CallBegins();
  }

  // On a preparer. From here on the call ends through its stream, or through Finish right here.
  void Prepare(const v1::GenerateRequest& proto, const std::string& tenant, const TimeNs deadline) {
    if (cancelled_) return Finish(Status(StatusCode::kCancelled, "the caller went away"));
    if (service_.clock_.Now() >= deadline) {
      return Finish(Status(StatusCode::kDeadlineExceeded, "the deadline passed before the request was prepared"));
    }
    StatusOr<TranslatedRequest> translated = TranslateGenerate(proto, tenant, service_.Context());
    if (!translated.ok()) return Finish(translated.status());
    translated->request.deadline = deadline;
    engine::Engine& engine = *service_.model_.load()->engine;
    auto stream =
        std::make_shared<TokenStream>(TokenStream::Options{.form = std::move(translated->form),
                                                           .pending_bytes_max = service_.config_.limits.stream_buffer,
                                                           .arrived = arrived_},
                                      *this, engine, service_.writers_, service_.metrics_, service_.clock_);
    {
      MutexLock lock(mu_);
      stream_ = stream;
    }
    const StatusOr<SequenceId> id = engine.Submit(std::move(translated->request), stream);
    // From a successful Submit on, this object may be gone: only the stream is safe.
    if (id.ok()) return stream->SetId(*id);
    Finish(id.status());
  }

  void Write(const v1::GenerateResponse* message) override { StartWrite(message); }

  void Finish(const Status& status) override {
    service_.metrics_.CountCall(Rpc::kGenerate, status.code());
    grpc::ServerWriteReactor<v1::GenerateResponse>::Finish(ToGrpcStatus(status));
  }

  void OnWriteDone(const bool ok) override { Stream()->OnWriteDone(ok); }

  void OnCancel() override {
    cancelled_ = true;
    if (const std::shared_ptr<TokenStream> stream = Stream()) stream->OnReaderGone();
  }

  void OnDone() override {
    GenerateService& service = service_;
    delete this;
    service.CallEnds();
  }

 private:
  std::shared_ptr<TokenStream> Stream() {
    MutexLock lock(mu_);
    return stream_;
  }

  GenerateService& service_;
  const TimeNs arrived_;
  std::atomic<bool> cancelled_ = false;
  Mutex mu_;
  std::shared_ptr<TokenStream> stream_ GUARDED_BY(mu_);  // Shared: engine and RPC end independently.
};

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateService::Generate(grpc::CallbackServerContext* context,
                                                                          const v1::GenerateRequest* request) {
  auto* call = new GenerateCall(*this, clock_.Now());  // Deletes itself in OnDone.
  StatusOr<std::string> tenant = Admit(*context, "/invar.v1.GenerationService/Generate");
  if (!tenant.ok()) {
    call->Finish(tenant.status());
    return call;
  }
  const TimeNs deadline = DeadlineOf(*context, config_.limits.request_timeout, clock_);
  // The request lives until OnDone, which follows Finish, which follows Prepare.
  const bool taken = preparers_.Post(
      [call, request, tenant = *std::move(tenant), deadline] { call->Prepare(*request, tenant, deadline); });
  if (!taken) call->Finish(ResourceExhausted("too many requests are being prepared"));
  return call;
}

// --- The unary calls ---

class GenerateService::UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(GenerateService& service, const Rpc rpc) : service_(service), rpc_(rpc) {}

  void End(const Status& status) {
    service_.metrics_.CountCall(rpc_, status.code());
    Finish(ToGrpcStatus(status));
  }
  void OnDone() override { delete this; }

 private:
  GenerateService& service_;
  const Rpc rpc_;
};

template <typename Work>
grpc::ServerUnaryReactor* GenerateService::RunUnary(grpc::CallbackServerContext* context, const Rpc rpc,
                                                    const std::string_view method, Work work) {
  auto* call = new UnaryCall(*this, rpc);  // Deletes itself in OnDone.
  const StatusOr<std::string> tenant = Admit(*context, method);
  if (!tenant.ok()) {
    call->End(tenant.status());
  } else if (!preparers_.Post([call, work] { call->End(work()); })) {
    call->End(ResourceExhausted("too many requests are being prepared"));
  }
  return call;
}

grpc::ServerUnaryReactor* GenerateService::Tokenize(grpc::CallbackServerContext* context,
                                                    const v1::TokenizeRequest* request,
                                                    v1::TokenizeResponse* response) {
  return RunUnary(context, Rpc::kTokenize, "/invar.v1.GenerationService/Tokenize", [this, request, response] {
    const StatusOr<std::vector<TokenId>> ids = TranslateTokenize(*request, Context());
    if (!ids.ok()) return ids.status();
    for (const TokenId id : *ids) response->add_ids(id.value());
    return OkStatus();
  });
}

grpc::ServerUnaryReactor* GenerateService::Detokenize(grpc::CallbackServerContext* context,
                                                      const v1::DetokenizeRequest* request,
                                                      v1::DetokenizeResponse* response) {
  return RunUnary(context, Rpc::kDetokenize, "/invar.v1.GenerationService/Detokenize", [this, request, response] {
    StatusOr<std::string> text = TranslateDetokenize(*request, Context());
    if (!text.ok()) return text.status();
    response->set_text(*std::move(text));
    return OkStatus();
  });
}

grpc::ServerUnaryReactor* GenerateService::RenderChat(grpc::CallbackServerContext* context,
                                                      const v1::RenderChatRequest* request,
                                                      v1::RenderChatResponse* response) {
  return RunUnary(context, Rpc::kRenderChat, "/invar.v1.GenerationService/RenderChat", [this, request, response] {
    StatusOr<v1::RenderChatResponse> rendered = TranslateRenderChat(*request, Context());
    if (!rendered.ok()) return rendered.status();
    *response = *std::move(rendered);
    return OkStatus();
  });
}

grpc::ServerUnaryReactor* GenerateService::ListModels(grpc::CallbackServerContext* context,
                                                      const v1::ListModelsRequest* /*request*/,
                                                      v1::ListModelsResponse* response) {
  return RunUnary(context, Rpc::kListModels, "/invar.v1.GenerationService/ListModels", [this, response] {
    const ServedModel& model = *model_.load();
    *response->add_models() = TranslateModelInfo(model.parts.name, model.spec());
    return OkStatus();
  });
}

// --- The whole ---

GenerateService::GenerateService(const config::Config& config, const Authenticator& authenticator, Metrics& metrics,
                                 const Clock& clock)
    : config_(config),
      authenticator_(authenticator),
      metrics_(metrics),
      clock_(clock),
      writers_(1, kWriterTasksMax),
      preparers_(kPreparerThreads, kPreparingMax) {}

void GenerateService::Serve(ServedModel& model) { model_ = &model; }

void GenerateService::BeginDrain() { draining_ = true; }

StatusOr<std::string> GenerateService::Admit(const grpc::CallbackServerContext& context,
                                             const std::string_view method) const {
  StatusOr<std::string> tenant = authenticator_.Authenticate(context, method);
  if (!tenant.ok()) return tenant;
  if (draining_) return Unavailable("the daemon is shutting down");
  if (model_.load() == nullptr) return Unavailable("the model is still loading");
  return tenant;
}

TranslateContext GenerateService::Context() const {
  const ServedModel& model = *model_.load();
  return {.model_name = model.parts.name,
          .spec = model.spec(),
          .max_request_tokens = model.engine->max_request_tokens(),
          .tokenizer = *model.parts.tokenizer,
          .chat_template = model.parts.chat_template.get(),
          .defaults = model.parts.defaults,
          .limits = config_.limits};
}

void GenerateService::CallBegins() { ++calls_open_; }

void GenerateService::CallEnds() {
  // Under the lock, so that a waiter cannot miss it and the last call cannot outlive the service.
  MutexLock lock(mu_);
  if (--calls_open_ == 0) idle_.NotifyAll();
}

bool GenerateService::WaitIdle(const std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mu_);
  while (calls_open_ > 0) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) return false;
    idle_.WaitFor(mu_, left);
  }
  return true;
}

}  // namespace invar::server
