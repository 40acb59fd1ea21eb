// See served_call.h.
#include "server/served_call.h"

#include <utility>

namespace invar::server {

ServedCall::ServedCall(const Keepers& keepers, grpc::CallbackServerContext& context, OpenCall open,
                       const TimeNs deadline)
    : keepers_(keepers), context_(context), deadline_(deadline), open_(std::move(open)) {}

Status ServedCall::Interrupted() const {
  if (cancelled_) return Status(StatusCode::kCancelled, "the caller went away");
  if (keepers_.clock.Now() < deadline_) return OkStatus();
  return Status(StatusCode::kDeadlineExceeded, "the deadline passed before the request was prepared");
}

bool ServedCall::IsStuck(const TimeNs limit) const {
  return finished_at_ != kNever && keepers_.clock.Now() - finished_at_ >= limit;
}

TimeNs ServedCall::NoteFinish() {
  const TimeNs now = keepers_.clock.Now();
  finished_at_ = now;
  return now;
}

void ServedCall::Leave() {
  keepers_.stalled_readers.Remove(watch_serial_);
  OpenCalls& calls = keepers_.open_calls;
  const OpenCall open = std::move(open_);
  delete this;
  calls.Ends(open);
}

}  // namespace invar::server
