// One reactor a call. A Generate call lives from its arrival to OnDone; its TokenStream is shared with the engine,
// which may end later.
#include "server/generate_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"

namespace invar::server {
namespace {

// Two: one large text does not keep the small ones waiting, and on a busy machine more would only take turns.
constexpr int kPreparerThreads = 2;

// One entry a stream that writes and one that ends it: above what all connections can have open.
size_t WriterTasksMax(const config::Config::Server& config) {
  return 2 * static_cast<size_t>(config.connections_max) * static_cast<size_t>(config.concurrent_streams_max);
}

size_t PreparingShare(const config::Config& config) {
  return static_cast<size_t>(TenantShare(config, config.limits.preparing_max));
}

// Of an id that is refused for its length, among others.
constexpr size_t kLoggedIdBytesMax = 128;

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
                                            public MessageWriter,
                                            public WatchedCall {
 public:
  GenerateCall(GenerateService& service, grpc::CallbackServerContext& context, OpenCall open, const TimeNs arrived)
      : service_(service), context_(context), open_(std::move(open)), arrived_(arrived) {
    watch_serial_ = service_.stalled_readers_.Add(*this);
  }

  // The call is let in: from here on its end is worth a line in the log.
  void Admit(const std::string& tenant) { tenant_ = tenant; }

  // On a preparer. From here on the call ends through its stream, or through Finish right here.
  void Prepare(const v1::GenerateRequest& proto, const std::string& tenant, const TimeNs deadline) {
    const auto interrupted = [this, deadline] {
      if (cancelled_) return Status(StatusCode::kCancelled, "the caller went away");
      if (service_.clock_.Now() < deadline) return OkStatus();
      return Status(StatusCode::kDeadlineExceeded, "the deadline passed before the request was prepared");
    };
    if (const Status s = interrupted(); !s.ok()) return Finish(s);
    const std::shared_ptr<const config::Config> config = service_.config_.config();
    request_id_ = proto.request_id().substr(0, kLoggedIdBytesMax);
    StatusOr<TranslatedRequest> translated =
        TranslateGenerate(proto, tenant, ContextOf(*service_.model_.load(), *config, interrupted));
    if (!translated.ok()) return Finish(translated.status());
    translated->request.deadline = deadline;
    request_id_ = translated->request.request_id;
    prompt_tokens_ = static_cast<int64_t>(translated->request.prompt.size());
    engine::Engine& engine = *service_.model_.load()->engine;
    auto stream = std::make_shared<TokenStream>(TokenStream::Options{.form = std::move(translated->form),
                                                                     .pending_bytes_max = config->limits.stream_buffer,
                                                                     .arrived = arrived_},
                                                *this, engine, service_.writers_, service_.metrics_, service_.clock_);
    {
      MutexLock lock(mu_);
      stream_ = stream;
    }
    // A cancel that came while there was no stream to tell; one that comes from here on finds it.
    if (cancelled_) return Finish(Status(StatusCode::kCancelled, "the caller went away"));
    const StatusOr<SequenceId> id = engine.Submit(std::move(translated->request), stream);
    // From a successful Submit on, this object may be gone: only the stream is safe.
    if (id.ok()) return stream->SetId(*id);
    Finish(id.status());
  }

  void Write(const v1::GenerateResponse* message) override { StartWrite(message); }

  void Finish(const Status& status) override {
    service_.metrics_.CountCall(Rpc::kGenerate, status.code());
    finished_at_ = service_.clock_.Now();
    LogEnd(status);
    grpc::ServerWriteReactor<v1::GenerateResponse>::Finish(ToGrpcStatus(status));
  }

  void OnWriteDone(const bool ok) override { Stream()->OnWriteDone(ok); }

  void OnCancel() override {
    cancelled_ = true;
    if (const std::shared_ptr<TokenStream> stream = Stream()) stream->OnReaderGone();
  }

  void OnDone() override {
    service_.stalled_readers_.Remove(watch_serial_);
    OpenCalls& calls = service_.open_calls_;
    const OpenCall open = std::move(open_);
    delete this;
    calls.Ends(open);
  }

  void CutStalledReader(const TimeNs limit) override {
    if (const std::shared_ptr<TokenStream> stream = Stream()) stream->CutStalledReader(limit);
  }
  bool IsStuck(const TimeNs limit) const override {
    return finished_at_ != kNever && service_.clock_.Now() - finished_at_ >= limit;
  }
  void Reset() override { context_.TryCancel(); }

 private:
  std::shared_ptr<TokenStream> Stream() {
    MutexLock lock(mu_);
    return stream_;
  }

  // One line of facts, never of text. Callers that are not let in could write the log full, so theirs is for debugging.
  void LogEnd(const Status& status) {
    if (!service_.config_.config()->log.requests) return;
    const auto level = tenant_ ? spdlog::level::info : spdlog::level::debug;
    const std::shared_ptr<spdlog::logger> logger = Logger("server");
    if (!logger->should_log(level)) return;
    RequestSummary summary;
    if (const std::shared_ptr<TokenStream> stream = Stream()) summary = stream->summary();
    LogFields fields;
    fields.Add("request_id", request_id_)
        .Add("tenant", tenant_.value_or(""))
        .Add("status", StatusCodeName(status.code()))
        .Add("prompt_tokens", prompt_tokens_)
        .Add("output_tokens", summary.output_tokens)
        .Add("total_s", ToSeconds(finished_at_ - arrived_));
    if (const ServedModel* model = service_.model_) fields.Add("model", model->parts.name);
    if (const auto& finished = summary.finished) {
      fields.Add("finish", finished->reason == engine::FinishReason::kStop ? "stop" : "length")
          .Add("cached_tokens", int64_t{finished->cached_tokens})
          .Add("preemptions", int64_t{finished->preemptions})
          .Add("queue_s", ToSeconds(finished->queued_for))
          .Add("prefill_s", ToSeconds(finished->prefill_for))
          .Add("decode_s", ToSeconds(finished->decode_for))
          .Add("first_token_s", ToSeconds(finished->first_token_after));
    }
    if (!status.ok()) fields.Add("error", status.message()).Add("field", status.field());
    LogWithFields(*logger, level, "request ended", fields);
  }

  GenerateService& service_;
  grpc::CallbackServerContext& context_;  // Lives until OnDone returns.
  OpenCall open_;
  const TimeNs arrived_;
  int64_t watch_serial_ = 0;
  std::atomic<bool> cancelled_ = false;
  std::atomic<TimeNs> finished_at_ = kNever;
  std::optional<std::string> tenant_;  // Set before the call is prepared; absent where it was not let in.
  std::string request_id_;             // As sent, then as chosen; set before the engine knows of the call.
  int64_t prompt_tokens_ = 0;          // As request_id_.
  Mutex mu_;
  std::shared_ptr<TokenStream> stream_ GUARDED_BY(mu_);  // Shared: engine and RPC end independently.
};

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateService::Generate(grpc::CallbackServerContext* context,
                                                                          const v1::GenerateRequest* request) {
  StatusOr<std::string> tenant = Admit(*context, "/invar.v1.GenerationService/Generate");
  const OpenCall open{.tenant = tenant.ok() ? *tenant : "",
                      .kind = CallKind::kGenerate,
                      .request_bytes = static_cast<int64_t>(request->SpaceUsedLong())};
  const std::shared_ptr<const config::Config> config = config_.config();
  const Status room = open_calls_.Begins(open, *config);
  auto* call = new GenerateCall(*this, *context, open, clock_.Now());  // Deletes itself in OnDone.
  if (tenant.ok()) call->Admit(*tenant);
  const Status let_in = tenant.ok() ? room : tenant.status();
  if (!let_in.ok()) {
    call->Finish(let_in);
    return call;
  }
  const TimeNs deadline = DeadlineOf(*context, config->limits.request_timeout, clock_);
  // The request lives until OnDone, which follows Finish, which follows Prepare.
  const auto prepare = [call, request, tenant = *tenant, deadline] { call->Prepare(*request, tenant, deadline); };
  if (!preparers_.Post(prepare, *tenant, PreparingShare(*config)))
    call->Finish(ResourceExhausted("too many requests are being prepared"));
  return call;
}

// --- The unary calls ---

template <typename Work>
grpc::ServerUnaryReactor* GenerateService::RunUnary(grpc::CallbackServerContext* context, const Rpc rpc,
                                                    const std::string_view method,
                                                    const google::protobuf::Message& request, Work work) {
  const StatusOr<std::string> tenant = Admit(*context, method);
  const OpenCall open{.tenant = tenant.ok() ? *tenant : "",
                      .kind = CallKind::kUnary,
                      .request_bytes = static_cast<int64_t>(request.SpaceUsedLong())};
  const std::shared_ptr<const config::Config> config = config_.config();
  const Status room = open_calls_.Begins(open, *config);
  auto* call = new UnaryCall(open_calls_, metrics_, rpc, open);  // Deletes itself in OnDone.
  const auto run = [this, call, work] {
    const Status gone = call->Interrupted();
    const std::shared_ptr<const config::Config> config = config_.config();
    call->End(gone.ok() ? work(ContextOf(*model_.load(), *config, [call] { return call->Interrupted(); })) : gone);
  };
  if (!tenant.ok()) {
    call->End(tenant.status());
  } else if (!room.ok()) {
    call->End(room);
  } else if (!preparers_.Post(run, *tenant, PreparingShare(*config))) {
    call->End(ResourceExhausted("too many requests are being prepared"));
  }
  return call;
}

grpc::ServerUnaryReactor* GenerateService::Tokenize(grpc::CallbackServerContext* context,
                                                    const v1::TokenizeRequest* request,
                                                    v1::TokenizeResponse* response) {
  return RunUnary(context, Rpc::kTokenize, "/invar.v1.GenerationService/Tokenize", *request,
                  [request, response](const TranslateContext& context) {
                    const StatusOr<std::vector<TokenId>> ids = TranslateTokenize(*request, context);
                    if (!ids.ok()) return ids.status();
                    for (const TokenId id : *ids) response->add_ids(id.value());
                    return OkStatus();
                  });
}

grpc::ServerUnaryReactor* GenerateService::Detokenize(grpc::CallbackServerContext* context,
                                                      const v1::DetokenizeRequest* request,
                                                      v1::DetokenizeResponse* response) {
  return RunUnary(context, Rpc::kDetokenize, "/invar.v1.GenerationService/Detokenize", *request,
                  [request, response](const TranslateContext& context) {
                    StatusOr<std::string> text = TranslateDetokenize(*request, context);
                    if (!text.ok()) return text.status();
                    response->set_text(*std::move(text));
                    return OkStatus();
                  });
}

grpc::ServerUnaryReactor* GenerateService::RenderChat(grpc::CallbackServerContext* context,
                                                      const v1::RenderChatRequest* request,
                                                      v1::RenderChatResponse* response) {
  return RunUnary(context, Rpc::kRenderChat, "/invar.v1.GenerationService/RenderChat", *request,
                  [request, response](const TranslateContext& context) {
                    StatusOr<v1::RenderChatResponse> rendered = TranslateRenderChat(*request, context);
                    if (!rendered.ok()) return rendered.status();
                    *response = *std::move(rendered);
                    return OkStatus();
                  });
}

grpc::ServerUnaryReactor* GenerateService::ListModels(grpc::CallbackServerContext* context,
                                                      const v1::ListModelsRequest* request,
                                                      v1::ListModelsResponse* response) {
  return RunUnary(context, Rpc::kListModels, "/invar.v1.GenerationService/ListModels", *request,
                  [response](const TranslateContext& context) {
                    *response->add_models() = TranslateModelInfo(context.model_name, context.spec);
                    return OkStatus();
                  });
}

// --- The whole ---

GenerateService::GenerateService(const LiveConfig& config, const Authenticator& authenticator, Metrics& metrics,
                                 const Clock& clock)
    : config_(config),
      authenticator_(authenticator),
      metrics_(metrics),
      clock_(clock),
      stalled_readers_(std::chrono::nanoseconds(config.config()->limits.slow_reader_timeout).count()),
      writers_(1, WriterTasksMax(config.config()->server)),
      preparers_(kPreparerThreads, static_cast<size_t>(config.config()->limits.preparing_max)) {}

void GenerateService::Serve(ServedModel& model) { model_ = &model; }

void GenerateService::BeginDrain() { draining_ = true; }

StatusOr<std::string> GenerateService::Admit(const grpc::CallbackServerContext& context,
                                             const std::string_view method) const {
  StatusOr<Caller> caller = authenticator_.Authenticate(context, method);
  if (!caller.ok()) return caller.status();
  if (draining_) return Unavailable("the daemon is shutting down");
  if (model_.load() == nullptr) return Unavailable("the model is still loading");
  return std::move(caller->tenant);
}

}  // namespace invar::server
