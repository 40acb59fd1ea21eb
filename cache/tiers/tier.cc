// Names of reasons, and the caller's memory of one call.
#include "cache/tiers/tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "cache/tiers/tier_store.h"

namespace invar::cache {
namespace {

constexpr std::string_view NameOf(const TierMiss miss) {
  switch (miss) {
    case TierMiss::kAbsent:
      return "absent";
    case TierMiss::kLate:
      return "late";
    case TierMiss::kFull:
      return "full";
    case TierMiss::kCorrupt:
      return "corrupt";
    case TierMiss::kUnavailable:
      return "unavailable";
    case TierMiss::kDenied:
      return "denied";
    case TierMiss::kCancelled:
      return "cancelled";
  }
  return {};
}
// With a switch over all values, which the compiler checks, the count is the enum's.
static_assert(!NameOf(TierMiss{kTierMissKinds - 1}).empty() && NameOf(TierMiss{kTierMissKinds}).empty());

template <typename Span>
int64_t PutBegins(const std::vector<Span>& spans, std::vector<int64_t>& begins) {
  int64_t bytes = 0;
  begins.reserve(spans.size());
  for (const Span& span : spans) {
    begins.push_back(bytes);
    bytes += static_cast<int64_t>(span.size());
  }
  return bytes;
}

// Calls visit(part of a span, offset within the range) for every part of [offset, offset + bytes).
template <typename Span, typename Visit>
void ForEachPart(const std::vector<Span>& spans, const std::vector<int64_t>& begins, const int64_t offset,
                 const int64_t bytes, const Visit& visit) {
  auto at = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), offset) - begins.begin());
  if (at > 0) --at;
  for (int64_t done = 0; done < bytes; ++at) {
    const int64_t skip = offset + done - begins[at];
    const int64_t count = std::min(bytes - done, static_cast<int64_t>(spans[at].size()) - skip);
    if (count <= 0) continue;
    visit(spans[at].subspan(static_cast<size_t>(skip), static_cast<size_t>(count)), static_cast<size_t>(done));
    done += count;
  }
}

}  // namespace

TierMiss MissOf(const StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      Check(false, "a miss has a reason");
      break;
    case StatusCode::kNotFound:
      return TierMiss::kAbsent;
    case StatusCode::kDeadlineExceeded:
      return TierMiss::kLate;
    case StatusCode::kResourceExhausted:
      return TierMiss::kFull;
    case StatusCode::kDataLoss:
      return TierMiss::kCorrupt;
    case StatusCode::kUnauthenticated:
    case StatusCode::kPermissionDenied:
      return TierMiss::kDenied;
    case StatusCode::kCancelled:
      return TierMiss::kCancelled;
    default:
      break;
  }
  return TierMiss::kUnavailable;
}

std::string_view TierMissName(const TierMiss miss) { return NameOf(miss); }

TierTransfer::TierTransfer(const TimeNs deadline) : deadline_(deadline) {}

TierTransfer::TierTransfer(TierPayload payload, const TimeNs deadline)
    : deadline_(deadline),
      bytes_(PutBegins(payload.spans, begins_)),
      payload_(std::move(payload.spans)),
      keep_alive_(std::move(payload.keep_alive)) {}

TierTransfer::TierTransfer(TierSink sink, const TimeNs deadline)
    : deadline_(deadline),
      bytes_(PutBegins(sink.spans, begins_)),
      sink_(std::move(sink.spans)),
      keep_alive_(std::move(sink.keep_alive)) {}

bool TierTransfer::CopyFromPayload(const int64_t offset, const std::span<std::byte> to) {
  Check(offset >= 0 && offset + static_cast<int64_t>(to.size()) <= bytes_, "a range of the payload", offset);
  const MutexLock lock(mu_);
  if (ended_) return false;
  ForEachPart(payload_, begins_, offset, static_cast<int64_t>(to.size()),
              [&](const std::span<const std::byte> part, const size_t done) {
                std::memcpy(to.data() + done, part.data(), part.size());
              });
  return true;
}

bool TierTransfer::CopyToSink(const int64_t offset, const std::span<const std::byte> from) {
  Check(offset >= 0 && offset + static_cast<int64_t>(from.size()) <= bytes_, "a range of the sink", offset);
  const MutexLock lock(mu_);
  if (ended_) return false;
  ForEachPart(sink_, begins_, offset, static_cast<int64_t>(from.size()),
              [&](const std::span<std::byte> part, const size_t done) {
                std::memcpy(part.data(), from.data() + done, part.size());
              });
  return true;
}

bool TierTransfer::Use(const TimeNs used_at) {
  const MutexLock lock(mu_);
  if (ended_ || is_settled_) return false;
  used_at_ = std::max(used_at_, used_at);
  return true;
}

TimeNs TierTransfer::LastUse(const TimeNs put_with) {
  const MutexLock lock(mu_);
  return std::max(used_at_, put_with);
}

TimeNs TierTransfer::SettleUse(const TimeNs put_with) {
  const MutexLock lock(mu_);
  is_settled_ = true;
  return std::max(used_at_, put_with);
}

bool TierTransfer::End() {
  std::shared_ptr<const void> keep_alive;  // Its end may run the caller's code: not under the lock.
  {
    const MutexLock lock(mu_);
    if (ended_) return false;
    ended_ = true;
    payload_.clear();
    sink_.clear();
    keep_alive.swap(keep_alive_);
  }
  return true;
}

bool TierTransfer::ended() {
  const MutexLock lock(mu_);
  return ended_;
}

Status CheckRecord(const TierRecord& record) {
  const auto header_bytes = static_cast<int64_t>(record.header.size());
  if (header_bytes <= kTierHeaderBytesMax && record.payload_bytes <= kTierPayloadBytesMax) return OkStatus();
  return InvalidArgument(fmt::format("a record of {} header bytes (at most {}) and {} payload bytes (at most {})",
                                     header_bytes, kTierHeaderBytesMax, record.payload_bytes, kTierPayloadBytesMax));
}

Status DroppedMeanwhile() {
  return Status(StatusCode::kCancelled, "the record's space was dropped while it was on its way");
}

Status CallEnded() { return Status(StatusCode::kDeadlineExceeded, "the call ended while the tier worked on it"); }

}  // namespace invar::cache
