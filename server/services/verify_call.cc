// See verify_call.h.
#include "server/services/verify_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/transfer_protocol.h"
#include "server/access/cache_access.h"
#include "server/wire/translate_verify.h"

namespace invar::server {

// What has come for a call, under its own lock, and the call's turns. Shared: the session may find that the call has
// gone.
class VerifyCall::Turns final : public TurnQueue::Node, public Beaten, public std::enable_shared_from_this<Turns> {
 public:
  Turns(VerifyCall& call, TurnQueue& senders) : senders_(senders), call_(&call) {}

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
  void TakeTurn() override {
    Mail mail;
    {
      const MutexLock lock(mu_);
      mail = std::exchange(mail_, {});
    }
    if (call_ != nullptr && call_->Work(std::move(mail))) call_ = nullptr;
  }

  TurnQueue& senders_;
  VerifyCall* call_;  // Senders' thread only. Null: it has ended.
  Mutex mu_;
  Mail mail_ GUARDED_BY(mu_);
};

VerifyCall::VerifyCall(CallGate& gate_of_all, grpc::CallbackServerContext& context, CallEntry known,
                       const Shared& shared)
    : ServedCall(gate_of_all, context, std::move(known)),
      shared_(shared),
      lease_(std::chrono::nanoseconds(gate().config()->transfer.lease).count()),
      turns_(std::make_shared<Turns>(*this, shared.senders)),
      ends_at_(deadline()),
      heard_at_(entry().at),
      sent_at_(entry().at) {}

void VerifyCall::Listen() {
  serial_ = shared_.heart.Add(turns_);
  turns_->Note([](Mail& mail) { mail.begins = true; });
}

void VerifyCall::OnReadDone(const bool ok) {
  turns_->Note([&, now = gate().clock().Now()](Mail& mail) {
    mail.read = ok;
    mail.read_at = now;
  });
}

void VerifyCall::OnWriteDone(const bool ok) {
  turns_->Note([&](Mail& mail) { mail.written = ok; });
}

void VerifyCall::OnCancel() {
  NoteCancel();
  turns_->Note([](Mail& mail) { mail.cancelled = true; });
}

void VerifyCall::OnDone() {
  if (serial_ != 0) shared_.heart.Remove(serial_);
  Leave();
}

void VerifyCall::CutStalledReader(const TimeNs limit) {
  turns_->Note([&](Mail& mail) { mail.write_limit = limit; });
}

void VerifyCall::Refuse(const Status& status) {
  turns_->Note([&](Mail& mail) { mail.refused = status; });
}

bool VerifyCall::Work(Mail mail) {
  const std::optional<Status> end = WorkOff(mail);
  if (!end.has_value()) return false;
  if (session_ != nullptr) session_->Cancel();
  shared_.tally.Ended(*end);
  End(*end);
  return true;
}

std::optional<Status> VerifyCall::WorkOff(Mail& mail) {
  if (mail.refused.has_value()) return *mail.refused;
  if (mail.written.has_value()) {
    is_writing_ = false;
    if (session_ != nullptr && written_tokens_ > 0) session_->Written(std::exchange(written_tokens_, 0));
  }
  for (engine::VerifySession::Event& event : mail.events) {
    if (auto* const frame = std::get_if<engine::VerifiedFrame>(&event)) {
      unsent_.push_back(std::move(*frame));
    } else {
      ended_ = std::get<Status>(std::move(event));
    }
  }
  if (mail.read == true) {
    heard_at_ = mail.read_at;
    if (Status s = OnMessage(); !s.ok()) return s;
  }
  if (mail.begins || mail.read == true) StartRead(&in_);
  if (mail.read == false || mail.written == false || mail.cancelled) {
    return Status(StatusCode::kCancelled, "the consumer went away");
  }
  if (mail.beats) {
    if (Status s = Overdue(); !s.ok()) return s;
    if (session_ != nullptr) session_->Beat();
  }
  const TimeNs now = gate().clock().Now();
  if (is_writing_) {
    if (now - sent_at_ < mail.write_limit) return std::nullopt;
    return Status(StatusCode::kAborted, "the consumer has taken nothing for too long");
  }
  if (!unsent_.empty()) {
    written_tokens_ = std::ssize(unsent_.front().tokens);
    shared_.tally.Sent(written_tokens_);
    Write(std::move(unsent_.front()));
    unsent_.pop_front();
  } else if (ended_.has_value()) {
    return ended_;
  } else if (mail.beats && now - sent_at_ >= engine::kTransferBeatNs) {
    Write(engine::HeartbeatFrame{});
  }
  return std::nullopt;
}

Status VerifyCall::OnMessage() {
  // One message is read after another into the same memory, which is as large as the largest yet.
  if (const auto bytes = static_cast<int64_t>(in_.SpaceUsedLong()); bytes > message_bytes_) {
    if (Status s = Grow(bytes - message_bytes_); !s.ok()) {
      in_ = v1::VerifyRequest();  // Clear would keep its memory.
      return s;
    }
    message_bytes_ = bytes;
  }
  engine::RunConsumerFrame frame;
  if (Status s = ToFrame(in_, frame, extras_); !s.ok()) return s;
  auto* const open = std::get_if<engine::VerifyOpenFrame>(&frame);
  if ((open != nullptr) != (session_ == nullptr)) return InvalidArgument("open: comes first, and once", "open");
  if (open != nullptr) return Open(std::move(*open));
  auto* const draft = std::get_if<engine::DraftFrame>(&frame);
  return draft != nullptr ? session_->Offer(std::move(*draft)) : OkStatus();
}

Status VerifyCall::Open(engine::VerifyOpenFrame open) {
  const ServedModel& model = *gate().model();
  const engine::TransferIdentity here = engine::IdentityOf(model.spec(), model.parts.tokenizer_digest);
  if (const std::optional<engine::IdentityDifference> difference = DifferenceOf(open.identity, here)) {
    return Status(StatusCode::kFailedPrecondition, difference->sentence, difference->field);
  }
  if (std::ssize(open.scope.salt) > gate().config()->limits.salt_bytes_max) {
    return InvalidArgument("open.salt: longer than limits.salt_bytes_max", "open.salt");
  }
  if (Status s = MayFetch(caller(), open.scope.tenant); !s.ok()) return s;
  const TimeNs timeout = std::clamp<int64_t>(extras_.timeout_ms, 0, int64_t{24} * 3'600'000) * 1'000'000;
  if (timeout > 0) ends_at_ = std::min(ends_at_, gate().clock().Now() + timeout);
  session_ = engine::VerifySession::Begin(
      *model.engine, {.request_id = extras_.request_id, .open = std::move(open), .deadline = ends_at_},
      [turns = turns_](engine::VerifySession::Event event) {
        turns->Note([&](Mail& mail) { mail.events.push_back(std::move(event)); });
      });
  return OkStatus();
}

Status VerifyCall::Overdue() {
  const TimeNs now = gate().clock().Now();
  if (now - heard_at_ > lease_) {
    return Unavailable(fmt::format("nothing was heard of the consumer for {:.1f} s", ToSeconds(now - heard_at_)));
  }
  if (now >= ends_at_) return Status(StatusCode::kDeadlineExceeded, "the consumer's time is over");
  return OkStatus();
}

void VerifyCall::Write(const engine::RunProducerFrame& frame) {
  out_ = ToMessage(frame);
  is_writing_ = true;
  sent_at_ = gate().clock().Now();
  StartWrite(&out_);
}

}  // namespace invar::server
