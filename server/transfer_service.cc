// See transfer_service.h. A call's lock is held over StartRead, StartWrite and Finish, so that they go out in the order
// in which they were decided; gRPC reacts to none of them on the thread that calls it. Nothing of PrefixExport is
// called with that lock held, since it calls back under its own.
#include "server/transfer_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "engine/prefix_export.h"
#include "engine/prefix_sender.h"
#include "server/cache_access.h"
#include "server/served_call.h"
#include "server/translate_transfer.h"

namespace invar::server {

using Reactor = grpc::ServerBidiReactor<v1::ConsumerMessage, v1::ProducerMessage>;

class TransferService::FetchCall final : public Reactor, public ServedCall {
 public:
  FetchCall(TransferService& service, grpc::CallbackServerContext& context, CallEntry known)
      : ServedCall(service.gate_, context, std::move(known)),
        service_(service),
        lease_(std::chrono::nanoseconds(gate().config()->transfer.lease).count()),
        heard_at_(entry().at),
        sent_at_(entry().at) {}

  // The heart looks after it from here on.
  void Listen() {
    {
      const MutexLock lock(service_.calls_mu_);
      serial_ = ++service_.last_call_;
      service_.calls_.emplace(serial_, this);
      service_.wake_.NotifyAll();
    }
    const MutexLock lock(mu_);
    if (!ended_) StartRead(&in_);
  }

  void OnReadDone(const bool ok) override {
    std::optional<engine::PrefixExport::Wanted> wanted;
    {
      const MutexLock lock(mu_);
      if (ended_) return;
      if (!ok) return ReaderGone();
      heard_at_ = gate().clock().Now();
      OpenExtras extras;
      const StatusOr<engine::ConsumerFrame> frame = ToFrame(in_, &extras);
      if (!frame.ok()) return EndWith(TransferService::End::kAbandoned, frame.status());
      const auto* const open = std::get_if<engine::OpenFrame>(&*frame);
      if ((open != nullptr) != !sender_.has_value()) {
        return EndWith(TransferService::End::kAbandoned, InvalidArgument("open: comes first, and once", "open"));
      }
      if (open != nullptr) {
        const Status opened = Open(*open, extras, wanted);
        if (!opened.ok()) return EndWith(TransferService::End::kRefused, opened);
      } else if (const Status s = sender_->On(*frame); !s.ok()) {
        return EndWith(TransferService::End::kAbandoned, s);
      }
      StartRead(&in_);
      Pump();
    }
    if (wanted.has_value()) BeginExport(*std::move(wanted));
  }
  void OnWriteDone(const bool ok) override {
    const MutexLock lock(mu_);
    is_writing_ = false;
    if (ended_) return;
    if (!ok) return ReaderGone();
    Pump();
  }
  void OnCancel() override {
    NoteCancel();
    const MutexLock lock(mu_);
    if (!ended_) ReaderGone();
  }
  void OnDone() override {
    if (exported_ != nullptr) exported_->Cancel();
    {
      const MutexLock lock(service_.calls_mu_);
      service_.calls_.erase(serial_);
    }
    service_.GiveBack(held_bytes_);
    Leave();
  }

  // From the heart, now and then.
  void Beat(const TimeNs now) {
    const MutexLock lock(mu_);
    if (ended_) return;
    if (now - heard_at_ > lease_) {
      return EndWith(
          TransferService::End::kExpired,
          Unavailable(fmt::format("nothing was heard of the consumer for {:.1f} s", ToSeconds(now - heard_at_))));
    }
    if (now >= deadline()) {
      return EndWith(TransferService::End::kAbandoned,
                     Status(StatusCode::kDeadlineExceeded, "the consumer's time is over"));
    }
    if (!is_writing_ && now - sent_at_ >= engine::kTransferBeatNs) Write(engine::HeartbeatFrame{});
  }

 private:
  void Refuse(const Status& status) override {
    const MutexLock lock(mu_);
    EndWith(TransferService::End::kRefused, status);
  }
  void FinishRpc(const grpc::Status& status) override { Finish(status); }

  Status Open(const engine::OpenFrame& open, const OpenExtras& extras,
              std::optional<engine::PrefixExport::Wanted>& wanted) REQUIRES_LOCK(mu_) {
    const ServedModel& model = *gate().model();
    sender_.emplace(engine::IdentityOf(model.spec(), model.parts.tokenizer_digest), service_.SenderLimits(model),
                    &model.profiles);
    if (Status s = sender_->Open(open); !s.ok()) return s;
    if (Status s = MayFetch(caller(), open.scope.tenant); !s.ok()) return s;
    if (Status s = service_.Take(sender_->prefix_bytes()); !s.ok()) return s;
    held_bytes_ = sender_->prefix_bytes();
    const TimeNs timeout = std::clamp<int64_t>(extras.timeout_ms, 0, int64_t{24} * 3'600'000) * 1'000'000;
    wanted = {.request_id = extras.request_id,
              .scope = open.scope,
              .tokens = open.tokens,
              .have_kv = open.have_kv,
              .have_state = open.have_state,
              .deadline = std::min(deadline(), timeout == 0 ? kNever : gate().clock().Now() + timeout),
              .coded = sender_->coded(),
              .shelf = model.shelf.get()};
    return OkStatus();
  }

  // The export calls back until it is cancelled, which OnDone does; and OnDone cannot come before the Finish that only
  // this, that callback or another reaction calls.
  void BeginExport(engine::PrefixExport::Wanted wanted) {
    exported_ = engine::PrefixExport::Begin(*gate().model()->engine, std::move(wanted),
                                            [this](StatusOr<engine::PrefixPart> part) {
                                              const MutexLock lock(mu_);
                                              if (ended_) return;
                                              if (!part.ok())
                                                return EndWith(TransferService::End::kFailed, part.status());
                                              sender_->Offer(*std::move(part));
                                              Pump();
                                            });
  }

  // Sends what may go out now.
  void Pump() REQUIRES_LOCK(mu_) {
    if (ended_ || is_writing_ || !sender_.has_value()) return;
    if (sender_->acknowledged()) return EndWith(TransferService::End::kSent, OkStatus());
    if (std::optional<engine::ProducerFrame> frame = sender_->Next(); frame.has_value()) Write(*std::move(frame));
  }
  void Write(engine::ProducerFrame frame) REQUIRES_LOCK(mu_) {
    out_ = ToMessage(std::move(frame));
    is_writing_ = true;
    sent_at_ = gate().clock().Now();
    StartWrite(&out_);
  }
  void ReaderGone() REQUIRES_LOCK(mu_) {
    // It may go before the last write is told to be done.
    if (sender_.has_value() && sender_->acknowledged()) return EndWith(TransferService::End::kSent, OkStatus());
    EndWith(TransferService::End::kAbandoned, Status(StatusCode::kCancelled, "the consumer went away"));
  }
  void EndWith(const TransferService::End end, const Status& status) REQUIRES_LOCK(mu_) {
    ended_ = true;
    service_.Count(end, sender_.has_value() ? sender_->sent_bytes() : 0);
    ServedCall::End(status);
  }

  TransferService& service_;
  const TimeNs lease_;
  int64_t serial_ = 0;                              // 0: it never listened.
  std::shared_ptr<engine::PrefixExport> exported_;  // Set by the one reaction to the Open, read by OnDone.

  Mutex mu_;
  bool ended_ GUARDED_BY(mu_) = false;
  bool is_writing_ GUARDED_BY(mu_) = false;
  std::optional<engine::PrefixSender> sender_ GUARDED_BY(mu_);
  TimeNs heard_at_ GUARDED_BY(mu_);
  TimeNs sent_at_ GUARDED_BY(mu_);
  int64_t held_bytes_ = 0;  // Set by the reaction to the Open, read by OnDone.
  v1::ConsumerMessage in_;
  v1::ProducerMessage out_;
};

TransferService::TransferService(CallGate& gate) : gate_(gate), heart_([this] { Beat(); }) {}

TransferService::~TransferService() {
  {
    const MutexLock lock(calls_mu_);
    closing_ = true;
    wake_.NotifyAll();
  }
  heart_.join();
}

Status TransferService::Take(const int64_t bytes) {
  const int64_t bytes_max = gate_.config()->transfer.bytes_max;
  const MutexLock lock(mu_);
  // One may always go alone.
  if (counts_.held_bytes > 0 && counts_.held_bytes + bytes > bytes_max) {
    return ResourceExhausted(
        fmt::format("transfer.bytes_max: prefixes of {} bytes are on their way, {} more exceed {}; try again later",
                    counts_.held_bytes, bytes, bytes_max));
  }
  counts_.held_bytes += bytes;
  return OkStatus();
}

void TransferService::GiveBack(const int64_t bytes) {
  const MutexLock lock(mu_);
  counts_.held_bytes -= bytes;
}

void TransferService::Count(const End end, const int64_t bytes) {
  const MutexLock lock(mu_);
  counts_.bytes += bytes;
  switch (end) {
    case End::kSent:
      ++counts_.sent;
      return;
    case End::kRefused:
      ++counts_.refused;
      return;
    case End::kFailed:
      ++counts_.failed;
      return;
    case End::kAbandoned:
      ++counts_.abandoned;
      return;
    case End::kExpired:
      ++counts_.expired;
      return;
  }
}

TransferCounts TransferService::counts() const {
  const ServedModel* const model = gate_.model();
  const MutexLock lock(mu_);
  TransferCounts counts = counts_;
  if (model != nullptr) counts.codes_kept_bytes = model->shelf->bytes();
  return counts;
}

// A call is erased under the lock of the map before it dies.
void TransferService::Beat() {
  const MutexLock lock(calls_mu_);
  while (!closing_) {
    if (calls_.empty()) {
      wake_.Wait(calls_mu_);
      continue;
    }
    wake_.WaitFor(calls_mu_, std::chrono::nanoseconds(engine::kTransferBeatNs));
    const TimeNs now = gate_.clock().Now();
    for (const auto& [serial, call] : calls_) call->Beat(now);
  }
}

engine::PrefixSender::Limits TransferService::SenderLimits(const ServedModel& model) const {
  return {.tokens_max = engine::MaxRequestTokens(model.engine->request_limits()),
          .salt_bytes_max = gate_.config()->limits.salt_bytes_max};
}

grpc::ServerUnaryReactor* TransferService::QuotePrefix(grpc::CallbackServerContext* context,
                                                       const v1::QuoteRequest* request, v1::QuoteResponse* response) {
  auto* const call = new UnaryCall(gate_, *context, gate_.Enter(*context, Rpc::kQuotePrefix, *request));
  if (call->Begin()) Quote(*request, *response, *call);
  return call;
}

void TransferService::Quote(const v1::QuoteRequest& request, v1::QuoteResponse& response, UnaryCall& call) {
  const StatusOr<engine::OpenFrame> open = OpenOf(request);
  if (!open.ok()) return call.End(open.status());
  const ServedModel& model = *gate_.model();
  engine::PrefixSender sender(engine::IdentityOf(model.spec(), model.parts.tokenizer_digest), SenderLimits(model),
                              &model.profiles);
  if (Status s = sender.Open(*open); !s.ok()) return call.End(s);
  if (Status s = MayFetch(call.caller(), open->scope.tenant); !s.ok()) return call.End(s);
  const engine::EngineStats stats = model.engine->Stats();
  response.set_as_is(!sender.coded().has_value());
  response.set_codes(sender.coded().has_value());
  response.set_tokens_per_second(stats.prefill_rate);
  if (stats.prefill_rate > 0) {
    response.set_queue_seconds(static_cast<double>(stats.prefill_tokens_ahead) / stats.prefill_rate);
  }
  response.mutable_padding()->resize(
      static_cast<size_t>(std::clamp<int64_t>(request.padding_bytes(), 0, engine::kChunkBytesMax)));
  std::optional<Digest> key;
  if (sender.coded().has_value()) key = engine::CodeShelf::KeyOf(*sender.coded(), open->scope, open->tokens);
  const auto whole = static_cast<int32_t>(open->tokens.size());
  const Status posted = model.engine->LookUpCached(
      {.scope = open->scope, .tokens = open->tokens},
      [&response, &call, &shelf = *model.shelf, key, whole](const int32_t tokens, const int64_t flushes) {
        const int32_t coded = key.has_value() && shelf.Has(*key, flushes) ? whole : 0;
        response.set_cached_tokens(key.has_value() ? coded : tokens);
        call.End(OkStatus());
      });
  if (!posted.ok()) call.End(posted);
}

Reactor* TransferService::FetchPrefix(grpc::CallbackServerContext* context) {
  CallEntry entry = gate_.Enter(*context, Rpc::kFetchPrefix, v1::ConsumerMessage::default_instance());
  {
    const MutexLock lock(mu_);
    ++counts_.asked;
  }
  auto* const call = new FetchCall(*this, *context, std::move(entry));  // Deletes itself.
  if (call->Begin()) call->Listen();
  return call;
}

}  // namespace invar::server
