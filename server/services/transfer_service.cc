// See transfer_service.h. Reactions, the engine and the heart only note what has come; it is worked off on the senders'
// thread, which alone touches a call's state machine and starts reads and writes: there bytes are copied, hashed and
// handed to gRPC.
#include "server/services/transfer_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "engine/prefix_export.h"
#include "engine/prefix_sender.h"
#include "server/access/cache_access.h"
#include "server/calls/served_call.h"
#include "server/peers/link_meter.h"
#include "server/services/verify_call.h"
#include "server/wire/translate_transfer.h"

namespace invar::server {

// Views that wait to be made, each with a copy of its prefix, which transfer.bytes_max counts.
constexpr size_t kViewsWaiting = 64;

using Reactor = grpc::ServerBidiReactor<v1::ConsumerMessage, v1::ProducerMessage>;

// What has come for a call, under its own lock, and the call's turns. Shared: the export may find that the call has
// gone.
class TransferService::FetchTurns final : public TurnQueue::Node,
                                          public Beaten,
                                          public std::enable_shared_from_this<FetchTurns> {
 public:
  struct Mail {
    std::optional<Status> refused;  // It was not let in.
    bool begins = false;
    std::optional<bool> read;  // As OnReadDone,
    TimeNs read_at = 0;        // and when.
    std::optional<bool> written;
    bool cancelled = false;
    bool beats = false;
    TimeNs write_limit = kNever;  // No write may have been out for so long.
    std::vector<StatusOr<engine::PrefixPart>> parts;
  };

  FetchTurns(FetchCall& call, TurnQueue& senders) : senders_(senders), call_(&call) {}

  // Threads: any.
  template <typename Write>
  void Note(const Write& write) {
    {
      const MutexLock lock(mu_);
      write(mail_);
    }
    senders_.Ask(shared_from_this());
  }
  void Beat() override {
    Note([](Mail& mail) { mail.beats = true; });
  }

 private:
  void TakeTurn() override;

  TurnQueue& senders_;
  FetchCall* call_;  // Senders' thread only. Null: it has ended.
  Mutex mu_;
  Mail mail_ GUARDED_BY(mu_);
};

TransferService::TransferService(CallGate& gate) : gate_(gate), views_(/*threads=*/1, kViewsWaiting) {}

engine::PrefixExport::Take TransferService::HandsOver(std::shared_ptr<FetchTurns> turns) {
  return [turns = std::move(turns)](StatusOr<engine::PrefixPart> part) {
    turns->Note([&](FetchTurns::Mail& mail) { mail.parts.push_back(std::move(part)); });
  };
}

// Neither the engine's thread nor the one that sends and beats for all has time for a pass over the KV.
engine::PrefixExport::Take TransferService::MakesView(const std::shared_ptr<FetchTurns>& turns,
                                                      const engine::OpenFrame& open) {
  return [this, give = HandsOver(turns), wish = open.view, tenant = open.scope.tenant,
          &engine = *gate_.model()->engine](StatusOr<engine::PrefixPart> part) {
    if (!part.ok()) return give(std::move(part));
    const auto image = std::make_shared<cache::PrefixImage>(std::get<cache::PrefixImage>(*std::move(part)));
    const auto make = [image, give, wish, &engine] {
      StatusOr<engine::PrefixView> view = engine.MakeView(*image, wish);
      give(view.ok() ? StatusOr<engine::PrefixPart>(*std::move(view)) : view.status());
    };
    if (views_.Post(make, tenant, kViewsWaiting) == TaskQueue::Posted::kTaken) return;
    give(ResourceExhausted("enough views of prefixes are being made already; try again later"));
  };
}

class TransferService::FetchCall final : public Reactor, public ServedCall {
 public:
  using Mail = FetchTurns::Mail;

  FetchCall(TransferService& service, grpc::CallbackServerContext& context, CallEntry known)
      : ServedCall(service.gate_, context, std::move(known)),
        service_(service),
        lease_(std::chrono::nanoseconds(gate().config()->transfer.lease).count()),
        turns_(std::make_shared<FetchTurns>(*this, service.senders_)),
        ends_at_(deadline()),
        heard_at_(entry().at),
        sent_at_(entry().at) {}

  // The heart looks after it from here on.
  void Listen() {
    serial_ = service_.heart_.Add(turns_);
    turns_->Note([](Mail& mail) { mail.begins = true; });
  }

  void OnReadDone(const bool ok) override {
    turns_->Note([&, now = gate().clock().Now()](Mail& mail) {
      mail.read = ok;
      mail.read_at = now;
    });
  }
  void OnWriteDone(const bool ok) override {
    turns_->Note([&](Mail& mail) { mail.written = ok; });
  }
  void OnCancel() override {
    NoteCancel();
    turns_->Note([](Mail& mail) { mail.cancelled = true; });
  }
  void OnDone() override {
    if (serial_ != 0) service_.heart_.Remove(serial_);
    GiveBackHeld();
    Leave();
  }
  // Who beats, but takes nothing, keeps the copy of its prefix.
  void CutStalledReader(const TimeNs limit) override {
    turns_->Note([&](Mail& mail) { mail.write_limit = limit; });
  }

  // Senders' thread. True: it has ended, and may be gone.
  bool Work(Mail mail) {
    const std::optional<Outcome> outcome = WorkOff(mail);
    if (!outcome.has_value()) return false;
    if (exported_ != nullptr) exported_->Cancel();
    service_.Count(outcome->end, sender_ != nullptr ? sender_->sent_bytes() : 0,
                   is_aborted() ? sender_->aborted()->reason : engine::AbortReason::kUnwanted);
    ServedCall::End(outcome->status);
    return true;
  }

 private:
  struct Outcome {
    TransferService::End end;
    Status status;
  };

  void Refuse(const Status& status) override {
    turns_->Note([&](Mail& mail) { mail.refused = status; });
  }
  void FinishRpc(const grpc::Status& status) override { Finish(status); }

  // nullopt: it goes on.
  std::optional<Outcome> WorkOff(Mail& mail) {
    if (mail.refused.has_value()) return Outcome{TransferService::End::kRefused, *mail.refused};
    if (mail.written.has_value()) is_writing_ = false;
    for (StatusOr<engine::PrefixPart>& part : mail.parts) {
      if (is_aborted()) break;
      if (!part.ok()) return Outcome{TransferService::End::kFailed, part.status()};
      sender_->Offer(*std::move(part));
    }
    if (mail.read == true) {
      heard_at_ = mail.read_at;
      if (const std::optional<Outcome> outcome = OnMessage(); outcome.has_value()) return outcome;
    }
    if (mail.begins || mail.read == true) StartRead(&in_);
    if (mail.read == false || mail.written == false || mail.cancelled) return ReaderGone();
    if (mail.beats) {
      if (const std::optional<Outcome> outcome = Overdue(); outcome.has_value()) return outcome;
    }
    if (is_writing_) {
      if (gate().clock().Now() - sent_at_ < mail.write_limit) return std::nullopt;
      return Outcome{TransferService::End::kExpired,
                     Status(StatusCode::kAborted, "the consumer has taken nothing for too long")};
    }
    if (sender_ != nullptr) {
      if (sender_->acknowledged()) return Outcome{TransferService::End::kSent, OkStatus()};
      if (sender_->released()) return Aborted();
      if (std::optional<engine::ProducerFrame> frame = sender_->Next(); frame.has_value()) {
        Write(*std::move(frame));
        return std::nullopt;
      }
    }
    if (mail.beats && gate().clock().Now() - sent_at_ >= engine::kTransferBeatNs) Write(engine::HeartbeatFrame{});
    return std::nullopt;
  }

  std::optional<Outcome> OnMessage() {
    if (Status s = TakeRoomFor(in_); !s.ok()) {
      in_ = v1::ConsumerMessage();  // Clear would keep its memory.
      return Outcome{TransferService::End::kRefused, std::move(s)};
    }
    OpenExtras extras;
    const StatusOr<engine::ConsumerFrame> frame = ToFrame(in_, &extras);
    if (!frame.ok()) return Outcome{TransferService::End::kAbandoned, frame.status()};
    const auto* const open = std::get_if<engine::OpenFrame>(&*frame);
    if ((open != nullptr) != (sender_ == nullptr)) {
      return Outcome{TransferService::End::kAbandoned, InvalidArgument("open: comes first, and once", "open")};
    }
    if (open != nullptr) {
      if (Status s = Open(*open, extras); !s.ok()) return Outcome{TransferService::End::kRefused, std::move(s)};
    } else if (Status s = sender_->On(*frame); !s.ok()) {
      return Outcome{TransferService::End::kAbandoned, std::move(s)};
    }
    if (is_aborted()) LetGo();
    return std::nullopt;
  }

  bool is_aborted() const { return sender_ != nullptr && sender_->aborted().has_value(); }
  // Before the consumer is told so.
  void LetGo() {
    if (exported_ != nullptr) exported_->Cancel();
    GiveBackHeld();
  }
  void GiveBackHeld() {
    if (held_bytes_ > 0) service_.GiveBack(held_for_, std::exchange(held_bytes_, 0));
  }
  Outcome Aborted() const {
    return {TransferService::End::kAborted,
            Status(StatusCode::kCancelled, "the consumer gave up: " + sender_->aborted()->why)};
  }

  // One message is read after another into the same memory, which is as large as the largest yet: the Open's tokens.
  Status TakeRoomFor(const v1::ConsumerMessage& message) {
    const auto bytes = static_cast<int64_t>(message.SpaceUsedLong());
    if (bytes <= message_bytes_) return OkStatus();
    if (Status s = Grow(bytes - message_bytes_); !s.ok()) return s;
    message_bytes_ = bytes;
    return OkStatus();
  }

  Status Open(const engine::OpenFrame& open, const OpenExtras& extras) {
    const ServedModel& model = *gate().model();
    StatusOr<std::unique_ptr<engine::PrefixSender>> sender = service_.SenderFor(open, caller());
    if (!sender.ok()) return sender.status();
    sender_ = *std::move(sender);
    if (Status s = service_.Take(open.scope.tenant, sender_->prefix_bytes()); !s.ok()) return s;
    held_for_ = open.scope.tenant;
    held_bytes_ = sender_->prefix_bytes();
    const TimeNs timeout = std::clamp<int64_t>(extras.timeout_ms, 0, int64_t{24} * 3'600'000) * 1'000'000;
    if (timeout > 0) ends_at_ = std::min(ends_at_, gate().clock().Now() + timeout);
    const bool is_view = !open.view.compressor.empty();
    exported_ = engine::PrefixExport::Begin(*model.engine,
                                            {.request_id = extras.request_id,
                                             .scope = open.scope,
                                             .tokens = open.tokens,
                                             .have_kv = open.have_kv,
                                             .have_state = open.have_state,
                                             .deadline = ends_at_,
                                             .coded = sender_->coded(),
                                             .shelf = model.shelf.get(),
                                             .only_cached = is_view},
                                            is_view ? service_.MakesView(turns_, open) : HandsOver(turns_));
    return OkStatus();
  }

  std::optional<Outcome> Overdue() {
    const TimeNs now = gate().clock().Now();
    if (now - heard_at_ > lease_) {
      return Outcome{
          TransferService::End::kExpired,
          Unavailable(fmt::format("nothing was heard of the consumer for {:.1f} s", ToSeconds(now - heard_at_)))};
    }
    if (now >= ends_at_) {
      return Outcome{TransferService::End::kAbandoned,
                     Status(StatusCode::kDeadlineExceeded, "the consumer's time is over")};
    }
    return std::nullopt;
  }

  void Write(engine::ProducerFrame frame) {
    out_ = ToMessage(std::move(frame));
    is_writing_ = true;
    sent_at_ = gate().clock().Now();
    StartWrite(&out_);
  }
  Outcome ReaderGone() const {
    // It may go before the last write is told to be done.
    if (sender_ != nullptr && sender_->acknowledged()) return {TransferService::End::kSent, OkStatus()};
    if (is_aborted()) return Aborted();
    return {TransferService::End::kAbandoned, Status(StatusCode::kCancelled, "the consumer went away")};
  }

  // Set at construction.
  TransferService& service_;
  const TimeNs lease_;
  const std::shared_ptr<FetchTurns> turns_;

  int64_t serial_ = 0;  // Set by Listen, read by OnDone. 0: it never listened.

  // Senders' thread only; OnDone reads what it left.
  std::unique_ptr<engine::PrefixSender> sender_;  // From the Open on.
  std::shared_ptr<engine::PrefixExport> exported_;
  bool is_writing_ = false;
  TimeNs ends_at_;  // Nobody waits any longer.
  TimeNs heard_at_;
  TimeNs sent_at_;             // When the last write began.
  int64_t message_bytes_ = 0;  // Of what is read, in the limit of requests.
  std::string held_for_;       // The tenant whose share
  int64_t held_bytes_ = 0;     // these bytes of a prefix are of.
  v1::ConsumerMessage in_;     // gRPC's from StartRead until OnReadDone,
  v1::ProducerMessage out_;    // and from StartWrite until OnWriteDone.
};

void TransferService::FetchTurns::TakeTurn() {
  Mail mail;
  {
    const MutexLock lock(mu_);
    mail = std::exchange(mail_, {});
  }
  if (call_ != nullptr && call_->Work(std::move(mail))) call_ = nullptr;
}

// What the engine found for a quote, which ends on the senders' thread: gRPC may take its time over an answer.
class TransferService::QuoteTurn final : public TurnQueue::Node {
 public:
  QuoteTurn(UnaryCall& call, v1::QuoteResponse& response) : call_(call), response_(response) {}
  int32_t cached_tokens = 0;  // Set before the turn is asked for.

 private:
  void TakeTurn() override {
    response_.set_cached_tokens(cached_tokens);
    call_.End(call_.Interrupted());
  }

  UnaryCall& call_;  // Live until it has ended.
  v1::QuoteResponse& response_;
};

Status TransferService::Take(const std::string& tenant, const int64_t bytes) {
  const std::shared_ptr<const config::Config> config = gate_.config();
  const int64_t bytes_max = config->transfer.bytes_max;
  const MutexLock lock(mu_);
  // One may always go alone.
  if (counts_.held_bytes > 0 && counts_.held_bytes + bytes > bytes_max) {
    return ResourceExhausted(
        fmt::format("transfer.bytes_max: prefixes of {} bytes are on their way, {} more exceed {}; try again later",
                    counts_.held_bytes, bytes, bytes_max));
  }
  const auto found = held_.find(tenant);
  const int64_t held = found == held_.end() ? 0 : found->second;
  if (const int64_t share = TenantShare(*config, bytes_max); held > 0 && held + bytes > share) {
    return ResourceExhausted(fmt::format(
        "limits.tenant_share_percent: prefixes of {} bytes of this tenant are on their way, {} more exceed its share "
        "of {}; try again later",
        held, bytes, share));
  }
  held_[tenant] += bytes;
  counts_.held_bytes += bytes;
  return OkStatus();
}

void TransferService::GiveBack(const std::string& tenant, const int64_t bytes) {
  const MutexLock lock(mu_);
  counts_.held_bytes -= bytes;
  const auto held = held_.find(tenant);
  held->second -= bytes;
  if (held->second == 0) held_.erase(held);
}

void TransferService::Count(const End end, const int64_t bytes, const engine::AbortReason reason) {
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
    case End::kAborted:
      ++counts_.aborted[static_cast<size_t>(reason)];
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

StatusOr<std::unique_ptr<engine::PrefixSender>> TransferService::SenderFor(const engine::OpenFrame& open,
                                                                           const Caller& caller) const {
  const ServedModel& model = *gate_.model();
  auto sender = std::make_unique<engine::PrefixSender>(
      engine::IdentityOf(model.spec(), model.parts.tokenizer_digest),
      engine::PrefixSender::Limits{.tokens_max = engine::MaxRequestTokens(model.engine->request_limits()),
                                   .salt_bytes_max = gate_.config()->limits.salt_bytes_max},
      &model.profiles);
  if (Status s = sender->Open(open); !s.ok()) return s;
  if (Status s = MayFetch(caller, open.scope.tenant); !s.ok()) return s;
  return sender;
}

grpc::ServerUnaryReactor* TransferService::QuotePrefix(grpc::CallbackServerContext* context,
                                                       const v1::QuoteRequest* request, v1::QuoteResponse* response) {
  auto* const call = new UnaryCall(gate_, *context, gate_.Enter(*context, Rpc::kQuotePrefix, *request));
  if (call->Begin()) Quote(*request, *response, *call);
  return call;
}

void TransferService::Quote(const v1::QuoteRequest& request, v1::QuoteResponse& response, UnaryCall& call) {
  if (Status s = call.Interrupted(); !s.ok()) return call.End(s);
  const StatusOr<engine::OpenFrame> open = OpenOf(request);
  if (!open.ok()) return call.End(open.status());
  const StatusOr<std::unique_ptr<engine::PrefixSender>> sender = SenderFor(*open, call.caller());
  if (!sender.ok()) return call.End(sender.status());
  const ServedModel& model = *gate_.model();
  const std::optional<engine::CodedExport>& coded = (*sender)->coded();
  const engine::EngineStats stats = model.engine->Stats();
  response.set_as_is(!coded.has_value());
  response.set_codes(coded.has_value());
  response.set_step_tokens(model.engine->step_tokens());
  response.set_tokens_per_second(stats.prefill_rate);
  if (stats.prefill_rate > 0) {
    response.set_queue_seconds(static_cast<double>(stats.prefill_tokens_ahead) / stats.prefill_rate);
  }
  response.mutable_padding()->resize(
      static_cast<size_t>(std::clamp<int64_t>(request.padding_bytes(), 0, LinkMeter::kPaddingBytes)));
  if (Status s = call.Hold(response); !s.ok()) return call.End(s);
  std::optional<Digest> key;
  if (coded.has_value()) key = engine::CodeShelf::KeyOf(*coded, open->scope, open->tokens);
  const auto whole = static_cast<int32_t>(open->tokens.size());
  const auto answer = std::make_shared<QuoteTurn>(call, response);
  const Status posted = model.engine->LookUpCached(
      {.scope = open->scope, .tokens = open->tokens},
      [this, answer, &shelf = *model.shelf, key, whole](const int32_t tokens, const int64_t flushes) {
        const int32_t whole_coded = key.has_value() && shelf.Has(*key, flushes) ? whole : 0;
        answer->cached_tokens = key.has_value() ? whole_coded : tokens;
        senders_.Ask(answer);
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

grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>* TransferService::VerifyPrefix(
    grpc::CallbackServerContext* context) {
  CallEntry entry = gate_.Enter(*context, Rpc::kVerifyPrefix, v1::VerifyRequest::default_instance());
  tally_.Begun();
  auto* const call = new VerifyCall(gate_, *context, std::move(entry),
                                    {.senders = senders_, .heart = heart_, .tally = tally_});  // Deletes itself.
  if (call->Begin()) call->Listen();
  return call;
}

}  // namespace invar::server
