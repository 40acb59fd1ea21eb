// See served_call.h.
#include "server/calls/served_call.h"

#include <utility>

#include "engine/request.h"
#include "server/wire/grpc_status.h"

namespace invar::server {

ServedCall::ServedCall(CallGate& gate, grpc::CallbackServerContext& context, CallEntry entry)
    : gate_(gate), context_(context), entry_(std::move(entry)) {}

bool ServedCall::Begin() {
  watch_serial_ = gate_.stalled_readers().Add(*this);
  if (entry_.open.let_in()) return true;
  if (entry_.open.must_reset()) context_.TryCancel();
  Refuse(entry_.open.status());
  return false;
}

Status ServedCall::Interrupted() const {
  if (cancelled_) return Status(StatusCode::kCancelled, "the caller went away");
  if (gate_.clock().Now() < deadline()) return OkStatus();
  return engine::DeadlinePassed();
}

bool ServedCall::IsStuck(const TimeNs limit) const {
  return finished_at_ != kNever && gate_.clock().Now() - finished_at_ >= limit;
}

void ServedCall::End(const Status& status) {
  gate_.metrics().CountCall(entry_.open.rpc(), status.code());
  finished_at_ = gate_.clock().Now();
  FinishRpc(ToGrpcStatus(status));
}

Status ServedCall::Grow(const int64_t bytes) { return entry_.open.Grow(bytes, *gate_.config()); }

void ServedCall::Leave() {
  gate_.stalled_readers().Remove(watch_serial_);
  // Is counted until nothing of it is left.
  const OpenCall open = std::move(entry_.open);
  delete this;
}

}  // namespace invar::server
