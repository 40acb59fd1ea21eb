// One reactor a call, which is a ServedCall too and lives from its arrival to OnDone. The TokenStream of a Generate
// call is shared with the engine, which may end later.
#include "server/generate_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "server/grpc_status.h"

namespace invar::server {
namespace {

// Two: one large text does not keep the small ones waiting, and on a busy machine more would only take turns.
constexpr int kPreparerThreads = 2;

// Of an id that is refused for its length, among others.
constexpr size_t kLoggedIdBytesMax = 128;

}  // namespace

// --- Generate ---

class GenerateService::GenerateCall final : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                                            public MessageWriter,
                                            public ServedCall {
 public:
  GenerateCall(GenerateService& service, grpc::CallbackServerContext& context, Arrival arrival)
      : ServedCall(service.keepers(), context, std::move(arrival.open), arrival.deadline),
        service_(service),
        arrived_(arrival.at),
        let_in_(arrival.verdict.status.ok()) {
    BeWatched();
  }

  // On a preparer. From here on the call ends through its stream, or through Finish right here.
  void Prepare(const v1::GenerateRequest& proto) {
    if (const Status s = Interrupted(); !s.ok()) return Finish(s);
    const std::shared_ptr<const config::Config> config = service_.config_.config();
    request_id_ = proto.request_id().substr(0, kLoggedIdBytesMax);
    StatusOr<TranslatedRequest> translated = TranslateGenerate(
        proto, open().tenant, ContextOf(*service_.model_.load(), *config, [this] { return Interrupted(); }));
    if (!translated.ok()) return Finish(translated.status());
    translated->request.deadline = deadline();
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
    if (cancelled()) return Finish(Status(StatusCode::kCancelled, "the caller went away"));
    const StatusOr<SequenceId> id = engine.Submit(std::move(translated->request), stream);
    // From a successful Submit on, this object may be gone: only the stream is safe.
    if (id.ok()) return stream->SetId(*id);
    Finish(id.status());
  }

  void Write(const v1::GenerateResponse* message) override { StartWrite(message); }

  void Finish(const Status& status) override {
    service_.metrics_.CountCall(Rpc::kGenerate, status.code());
    LogEnd(status, NoteFinish());
    grpc::ServerWriteReactor<v1::GenerateResponse>::Finish(ToGrpcStatus(status));
  }

  void OnWriteDone(const bool ok) override { Stream()->OnWriteDone(ok); }

  void OnCancel() override {
    NoteCancel();
    if (const std::shared_ptr<TokenStream> stream = Stream()) stream->OnReaderGone();
  }

  void OnDone() override { Leave(); }

  void CutStalledReader(const TimeNs limit) override {
    if (const std::shared_ptr<TokenStream> stream = Stream()) stream->CutStalledReader(limit);
  }

 private:
  std::shared_ptr<TokenStream> Stream() {
    MutexLock lock(mu_);
    return stream_;
  }

  // One line of facts, never of text. Callers that are not let in could write the log full, so theirs is for debugging.
  void LogEnd(const Status& status, const TimeNs finished_at) {
    if (!service_.config_.config()->log.requests) return;
    const auto level = let_in_ ? spdlog::level::info : spdlog::level::debug;
    const std::shared_ptr<spdlog::logger> logger = Logger("server");
    if (!logger->should_log(level)) return;
    RequestSummary summary;
    if (const std::shared_ptr<TokenStream> stream = Stream()) summary = stream->summary();
    LogFields fields;
    fields.Add("request_id", request_id_)
        .Add("tenant", open().tenant)
        .Add("status", StatusCodeName(status.code()))
        .Add("prompt_tokens", prompt_tokens_)
        .Add("output_tokens", summary.output_tokens)
        .Add("total_s", ToSeconds(finished_at - arrived_));
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
    if (!status.ok()) fields.Add("field", status.field());
    // What is wrong with a request may be said in its own words.
    if (!status.ok() && status.code() != StatusCode::kInvalidArgument) fields.Add("error", status.message());
    LogWithFields(*logger, level, "request ended", fields);
  }

  GenerateService& service_;
  const TimeNs arrived_;
  const bool let_in_;
  std::string request_id_;     // As sent, then as chosen; set before the engine knows of the call.
  int64_t prompt_tokens_ = 0;  // As request_id_.
  Mutex mu_;
  std::shared_ptr<TokenStream> stream_ GUARDED_BY(mu_);  // Shared: engine and RPC end independently.
};

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateService::Generate(grpc::CallbackServerContext* context,
                                                                          const v1::GenerateRequest* request) {
  Arrival arrival = ArriveAt(*context, CallKind::kGenerate, "/invar.v1.GenerationService/Generate", *request);
  const OpenCalls::Verdict verdict = arrival.verdict;
  const std::string tenant = arrival.open.tenant;
  auto* call = new GenerateCall(*this, *context, std::move(arrival));  // Deletes itself in OnDone.
  if (!verdict.status.ok()) {
    if (verdict.reset) context->TryCancel();
    call->Finish(verdict.status);
    return call;
  }
  // The request lives until OnDone, which follows Finish, which follows Prepare.
  const Status posted = PostPreparing(tenant, [call, request] { call->Prepare(*request); });
  if (!posted.ok()) call->Finish(posted);
  return call;
}

// --- The unary calls ---

template <typename Work>
grpc::ServerUnaryReactor* GenerateService::RunUnary(grpc::CallbackServerContext* context, const UnaryMethod& method,
                                                    const google::protobuf::Message& request,
                                                    google::protobuf::Message& response, Work work) {
  Arrival arrival = ArriveAt(*context, CallKind::kUnary, method.path, request);
  const OpenCalls::Verdict verdict = arrival.verdict;
  const std::string tenant = arrival.open.tenant;
  auto* call = new UnaryCall(keepers(), metrics_, method.rpc, *context, std::move(arrival));  // Deletes itself.
  const auto run = [this, call, work, &response] {
    const std::shared_ptr<const config::Config> config = config_.config();
    call->Run([&] { return work(ContextOf(*model_.load(), *config, [call] { return call->Interrupted(); })); },
              response, *config);
  };
  if (!verdict.status.ok()) {
    if (verdict.reset) context->TryCancel();
    call->End(verdict.status);
  } else if (!method.takes_time) {
    run();
  } else {
    const Status posted = PostPreparing(tenant, run);
    if (!posted.ok()) call->End(posted);
  }
  return call;
}

grpc::ServerUnaryReactor* GenerateService::Tokenize(grpc::CallbackServerContext* context,
                                                    const v1::TokenizeRequest* request,
                                                    v1::TokenizeResponse* response) {
  return RunUnary(context, {Rpc::kTokenize, "/invar.v1.GenerationService/Tokenize"}, *request, *response,
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
  return RunUnary(context, {Rpc::kDetokenize, "/invar.v1.GenerationService/Detokenize"}, *request, *response,
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
  return RunUnary(context, {Rpc::kRenderChat, "/invar.v1.GenerationService/RenderChat"}, *request, *response,
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
  return RunUnary(context, {Rpc::kListModels, "/invar.v1.GenerationService/ListModels", /*takes_time=*/false}, *request,
                  *response, [response](const TranslateContext& context) {
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
      preparing_max_(config.config()->limits.preparing_max),
      stalled_readers_(std::chrono::nanoseconds(config.config()->limits.slow_reader_timeout).count()),
      preparers_(kPreparerThreads, static_cast<size_t>(preparing_max_)) {}

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

Arrival GenerateService::ArriveAt(const grpc::CallbackServerContext& context, const CallKind kind,
                                  const std::string_view method, const google::protobuf::Message& request) {
  return Arrive(open_calls_, clock_, *config_.config(), context, kind, Admit(context, method), request);
}

Status GenerateService::PostPreparing(const std::string& tenant, std::function<void()> work) {
  const int64_t share = TenantShare(*config_.config(), preparing_max_);
  switch (preparers_.Post(std::move(work), tenant, static_cast<size_t>(share))) {
    case TaskQueue::Posted::kTaken:
      return OkStatus();
    case TaskQueue::Posted::kFull:
      ++preparing_refusals_;
      return ResourceExhausted(
          fmt::format("limits.preparing_max: {} calls wait to be prepared already, as many as may; try again later",
                      preparing_max_));
    case TaskQueue::Posted::kLaneFull:
      ++preparing_share_refusals_;
      return ResourceExhausted(fmt::format(
          "limits.tenant_share_percent: {} calls of this tenant wait to be prepared already, its share of {}; try "
          "again later",
          share, preparing_max_));
  }
  Check(false, "a task is taken or refused");
  return OkStatus();
}

CallReport GenerateService::calls() const {
  const OpenCalls::Report open = open_calls_.report();
  return {.open = open.generate_calls,
          .preparing = static_cast<int64_t>(preparers_.waiting()),
          .bytes = open.bytes,
          .refused_bytes = open.refused_bytes,
          .bytes_refusals = open.bytes_refusals,
          .preparing_refusals = preparing_refusals_,
          .share_refusals = open.share_refusals + preparing_share_refusals_,
          .resets = open.resets};
}

}  // namespace invar::server
