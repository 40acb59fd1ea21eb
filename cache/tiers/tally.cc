// See tally.h.
#include "cache/tiers/tally.h"

#include <fmt/format.h>

namespace invar::cache {

void DecayedRate::Add(const int64_t bytes, const double seconds) {
  constexpr double kKept = 0.9;  // The last ten transfers weigh about two thirds.
  bytes_ = bytes_ * kKept + static_cast<double>(bytes);
  seconds_ = seconds_ * kKept + seconds;
}

Status TierTally::Admit(const TierCall call, const int64_t bytes, const TierLimits& limits,
                        const std::string_view tier) {
  InFlight& way = WayOf(call);
  const bool too_many = way.calls >= limits.queue_max;
  const bool too_large = way.bytes + bytes > limits.queue_bytes_max && way.bytes > 0;
  if (call != TierCall::kDrop && (too_many || too_large)) {
    Status full = ResourceExhausted(fmt::format("{}: {} calls with {} bytes in flight, at most {} and {}", tier,
                                                way.calls, way.bytes, limits.queue_max, limits.queue_bytes_max));
    Count(call, full);
    return full;
  }
  ++way.calls;
  way.bytes += bytes;
  return OkStatus();
}

void TierTally::End(const TierCall call, const Status& status, const int64_t bytes, const double seconds) {
  --WayOf(call).calls;
  WayOf(call).bytes -= bytes;
  Count(call, status);
  if (!status.ok()) return;
  if (call == TierCall::kPut) {
    stats_.bytes_written += bytes;
    writes_.Add(bytes, seconds);
  } else if (call == TierCall::kGet) {
    stats_.bytes_read += bytes;
    reads_.Add(bytes, seconds);
  }
}

TierTally::InFlight& TierTally::WayOf(const TierCall call) {
  if (call == TierCall::kDrop) return dropping_;
  return call == TierCall::kPut ? writing_ : reading_;
}

void TierTally::Refuse(const TierCall call, const Status& status) { Count(call, status); }

void TierTally::Count(const TierCall call, const Status& status) {
  const auto miss = [&] { return static_cast<size_t>(MissOf(status.code())); };
  switch (call) {
    case TierCall::kFind:
      ++stats_.finds;
      if (!status.ok()) ++stats_.get_misses[miss()];
      break;
    case TierCall::kPut:
      ++stats_.puts;
      ++(status.ok() ? stats_.stored : stats_.put_misses[miss()]);
      break;
    case TierCall::kGet:
      ++stats_.gets;
      ++(status.ok() ? stats_.hits : stats_.get_misses[miss()]);
      break;
    case TierCall::kDrop:
      ++stats_.drops;
      break;
  }
}

TierStats TierTally::Read(const TierContents& contents, const TierGuard& guard, const TimeNs now) const {
  TierStats out = stats_;
  out.records = contents.records;
  out.bytes = contents.bytes;
  out.budget_bytes = contents.budget_bytes;
  out.evictions = contents.evictions;
  out.damaged = contents.damaged;
  out.paused = guard.is_paused(now) ? 1 : 0;
  out.pauses = guard.pauses();
  out.in_flight = reading_.calls + writing_.calls + dropping_.calls;
  out.in_flight_bytes = reading_.bytes + writing_.bytes;
  out.write_bytes_per_second = writes_.bytes_per_second();
  out.read_bytes_per_second = reads_.bytes_per_second();
  return out;
}

}  // namespace invar::cache
