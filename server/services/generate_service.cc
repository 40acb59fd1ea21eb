// One reactor a call, which is a ServedCall too and lives from its arrival to OnDone. The TokenStream of a Generate
// call is shared with the engine, which may end later.
#include "server/services/generate_service.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "server/calls/served_call.h"
#include "server/calls/token_stream.h"
#include "server/calls/unary_call.h"

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
  GenerateCall(GenerateService& service, grpc::CallbackServerContext& context, CallEntry entry)
      : ServedCall(service.gate_, context, std::move(entry)), service_(service) {}

  // On a preparer. From here on the call ends through its stream, or through Finish right here.
  void Prepare(const v1::GenerateRequest& proto) {
    if (const Status s = Interrupted(); !s.ok()) return Finish(s);
    const std::shared_ptr<const config::Config> config = gate().config();
    request_id_ = proto.request_id().substr(0, kLoggedIdBytesMax);
    StatusOr<TranslatedRequest> translated = TranslateGenerate(
        proto, caller().tenant, ContextOf(*gate().model(), *config, [this] { return Interrupted(); }));
    if (!translated.ok()) return Finish(translated.status());
    translated->request.deadline = deadline();
    request_id_ = translated->request.request_id;
    prompt_tokens_ = static_cast<int64_t>(translated->request.prompt.size());
    engine::Engine& engine = *gate().model()->engine;
    auto stream = std::make_shared<TokenStream>(TokenStream::Options{.form = std::move(translated->form),
                                                                     .pending_bytes_max = config->limits.stream_buffer,
                                                                     .arrived = entry().at},
                                                *this, engine, service_.writers_, gate().metrics(), gate().clock());
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
    LogEnd(status);
    End(status);
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
  void Refuse(const Status& status) override { Finish(status); }
  void FinishRpc(const grpc::Status& status) override {
    grpc::ServerWriteReactor<v1::GenerateResponse>::Finish(status);
  }

  std::shared_ptr<TokenStream> Stream() {
    MutexLock lock(mu_);
    return stream_;
  }

  // One line of facts, never of text. Callers that are not let in could write the log full, so theirs is for debugging.
  void LogEnd(const Status& status) {
    if (!gate().config()->log.requests) return;
    const auto level = entry().open.let_in() ? spdlog::level::info : spdlog::level::debug;
    const std::shared_ptr<spdlog::logger> logger = Logger("server");
    if (!logger->should_log(level)) return;
    RequestSummary summary;
    if (const std::shared_ptr<TokenStream> stream = Stream()) summary = stream->summary();
    LogFields fields;
    fields.Add("request_id", request_id_)
        .Add("tenant", caller().tenant)
        .Add("status", StatusCodeName(status.code()))
        .Add("prompt_tokens", prompt_tokens_)
        .Add("output_tokens", summary.output_tokens)
        .Add("total_s", ToSeconds(gate().clock().Now() - entry().at));
    if (const ServedModel* model = gate().model()) fields.Add("model", model->parts.name);
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
  std::string request_id_;     // As sent, then as chosen; set before the engine knows of the call.
  int64_t prompt_tokens_ = 0;  // As request_id_.
  Mutex mu_;
  std::shared_ptr<TokenStream> stream_ GUARDED_BY(mu_);  // Shared: engine and RPC end independently.
};

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateService::Generate(grpc::CallbackServerContext* context,
                                                                          const v1::GenerateRequest* request) {
  // Deletes itself in OnDone.
  auto* const call = new GenerateCall(*this, *context, gate_.Enter(*context, Rpc::kGenerate, *request));
  if (!call->Begin()) return call;
  // The request lives until OnDone, which follows Finish, which follows Prepare.
  const Status posted = PostPreparing(call->caller().tenant, [call, request] { call->Prepare(*request); });
  if (!posted.ok()) call->Finish(posted);
  return call;
}

// --- The unary calls ---

template <typename Work>
grpc::ServerUnaryReactor* GenerateService::RunUnary(grpc::CallbackServerContext* context, const Rpc rpc, const On where,
                                                    const google::protobuf::Message& request,
                                                    google::protobuf::Message& response, Work work) {
  auto* const call = new UnaryCall(gate_, *context, gate_.Enter(*context, rpc, request));  // Deletes itself.
  if (!call->Begin()) return call;
  const auto run = [this, call, work, &response] {
    const std::shared_ptr<const config::Config> config = gate_.config();
    call->Run([&] { return work(ContextOf(*gate_.model(), *config, [call] { return call->Interrupted(); })); },
              response);
  };
  if (where == On::kReaction) {
    run();
  } else if (const Status posted = PostPreparing(call->caller().tenant, run); !posted.ok()) {
    call->End(posted);
  }
  return call;
}

grpc::ServerUnaryReactor* GenerateService::Tokenize(grpc::CallbackServerContext* context,
                                                    const v1::TokenizeRequest* request,
                                                    v1::TokenizeResponse* response) {
  return RunUnary(context, Rpc::kTokenize, On::kPreparer, *request, *response,
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
  return RunUnary(context, Rpc::kDetokenize, On::kPreparer, *request, *response,
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
  return RunUnary(context, Rpc::kRenderChat, On::kPreparer, *request, *response,
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
  return RunUnary(
      context, Rpc::kListModels, On::kReaction, *request, *response, [response](const TranslateContext& context) {
        *response->add_models() = TranslateModelInfo(context.model_name, context.spec, context.request_limits);
        return OkStatus();
      });
}

// --- The whole ---

GenerateService::GenerateService(CallGate& gate)
    : gate_(gate),
      preparing_max_(gate.config()->limits.preparing_max),
      preparers_(kPreparerThreads, static_cast<size_t>(preparing_max_)) {}

Status GenerateService::PostPreparing(const std::string& tenant, std::function<void()> work) {
  const int64_t share = TenantShare(*gate_.config(), preparing_max_);
  switch (preparers_.Post(std::move(work), tenant, static_cast<size_t>(share))) {
    case TaskQueue::Posted::kTaken:
      return OkStatus();
    case TaskQueue::Posted::kFull:
      ++refusals_;
      return ResourceExhausted(
          fmt::format("limits.preparing_max: {} calls wait to be prepared already, as many as may; try again later",
                      preparing_max_));
    case TaskQueue::Posted::kLaneFull:
      ++share_refusals_;
      return ResourceExhausted(fmt::format(
          "limits.tenant_share_percent: {} calls of this tenant wait to be prepared already, its share of {}; try "
          "again later",
          share, preparing_max_));
  }
  Check(false, "a task is taken or refused");
  return OkStatus();
}

PreparingReport GenerateService::preparing() const {
  return {
      .waiting = static_cast<int64_t>(preparers_.waiting()), .refusals = refusals_, .share_refusals = share_refusals_};
}

}  // namespace invar::server
