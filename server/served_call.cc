// See served_call.h.
#include "server/served_call.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/request.h"
namespace invar::server {
namespace {

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

Arrival Arrive(OpenCalls& open_calls, const Clock& clock, const config::Config& config,
               const grpc::CallbackServerContext& context, const CallKind kind, const StatusOr<std::string>& tenant,
               const google::protobuf::Message& request) {
  Arrival arrival{.at = clock.Now(),
                  .deadline = DeadlineOf(context, config.limits.request_timeout, clock),
                  .open = {.tenant = tenant.ok() ? *tenant : "",
                           .kind = kind,
                           .bytes = static_cast<int64_t>(request.SpaceUsedLong())},
                  .verdict = {}};
  arrival.verdict = open_calls.Begins(arrival.open, tenant.ok() ? OkStatus() : tenant.status(), config);
  return arrival;
}

ServedCall::ServedCall(const Keepers& keepers, grpc::CallbackServerContext& context, OpenCall open,
                       const TimeNs deadline)
    : keepers_(keepers), context_(context), deadline_(deadline), open_(std::move(open)) {}

Status ServedCall::Interrupted() const {
  if (cancelled_) return Status(StatusCode::kCancelled, "the caller went away");
  if (keepers_.clock.Now() < deadline_) return OkStatus();
  return engine::DeadlinePassed();
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
