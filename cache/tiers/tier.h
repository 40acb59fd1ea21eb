// Tier: an asynchronous store of records beyond the pools: host memory, a disk, a server that instances share.
// A record is a key, a header in the caller's own words and a payload of bytes; a tier knows no tree, no page and no
// model. What a tier cannot do in time is a miss with a reason, never a wait and never wrong bytes.
//
//   caller's thread   Find / Put / Get / Drop -> OK: accepted, `done` will run once. Not OK: refused, it never runs.
//   some later time   `done`, on a thread of the tier, or inside Poll() for tiers without threads (simulated.h)
//
// Memory: payload and sink belong to the caller. A tier touches them only before `done` runs, and lets the keep-alive
// go before `done` runs, also where the deadline passed in the middle of the I/O: it works on buffers of its own.
// Order: none is promised between calls in flight, not even of one key; but a Drop is after all that was accepted
// before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace invar::cache {

// SHA-256 by the caller over everything that separates records: tenant, salt, provenance, model fingerprint, numerics
// id, and the tokens of the prefix.
using TierKey = std::array<std::byte, 32>;

// 64K token ids and what goes with them.
inline constexpr int64_t kTierHeaderBytesMax = int64_t{256} << 10;
// A record above this is refused everywhere: sizes read from outside are checked against it before memory is taken.
inline constexpr int64_t kTierPayloadBytesMax = int64_t{16} << 30;

// Keys are SHA-256 already: their first bytes spread.
struct TierKeyHash {
  size_t operator()(const TierKey& key) const {
    size_t hash = 0;
    std::memcpy(&hash, key.data(), sizeof(hash));
    return hash;
  }
};

// Whose a record is, from the widest to the narrowest: what begins alike can be dropped together.
using TierSpace = std::array<std::byte, 32>;

// All spaces that begin with the first `bytes` of `space`; 0: all there are.
struct TierSpaces {
  TierSpace space{};  // Zeros behind `bytes`.
  size_t bytes = 0;

  bool Cover(const TierSpace& other) const { return std::memcmp(space.data(), other.data(), bytes) == 0; }
  bool Cover(const TierSpaces& other) const { return bytes <= other.bytes && Cover(other.space); }
};

// One header out of the one that is there and the one that is put.
using TierMerge = std::string (*)(std::string_view there, std::string_view ours);

struct TierRecord {
  TierKey key{};
  TierSpace space{};
  std::string header = {};  // At most kTierHeaderBytesMax. A reader compares it in full with the one it expects.
  int64_t payload_bytes = 0;
  // When it was last used, by the caller's clock: what a tier gives up first, and what it refuses because all it holds
  // is worth more. Compared within one process only: what a tier has from before is older. kJustNow: the latest.
  TimeNs used_at = kJustNow;
  // Where several instances put a record under one key and all of them count; null: the last one replaces the others.
  // Shared tiers only, without a payload.
  TierMerge merge = nullptr;

  static constexpr TimeNs kJustNow = kNever;
};

// How long calls may take before they are given up.
struct TierDeadlines {
  TimeNs read = 0;  // A request waits no longer for a tier.
  TimeNs write = 0;
};

// What to store: the concatenation of the spans.
struct TierPayload {
  std::vector<std::span<const std::byte>> spans;
  std::shared_ptr<const void> keep_alive;
};

// What to fill: the payload runs through the spans in order, and must fill them exactly. After an error the content is
// a verified beginning or untouched, and means nothing.
struct TierSink {
  std::vector<std::span<std::byte>> spans;
  std::shared_ptr<const void> keep_alive;
};

// Why something was not there, or was not stored.
enum class TierMiss : int {
  kAbsent,       // NOT_FOUND: nothing under this key.
  kLate,         // DEADLINE_EXCEEDED: not in time.
  kFull,         // RESOURCE_EXHAUSTED: queue, budget, disk or server has no room.
  kCorrupt,      // DATA_LOSS: size, checksum or MAC is wrong; the record has been dropped.
  kUnavailable,  // UNAVAILABLE and what else the outside may answer: I/O error, no connection, circuit breaker open.
  kDenied,       // UNAUTHENTICATED, PERMISSION_DENIED: the server refuses our credentials.
  kCancelled,    // CANCELLED: the tier was closed first, or the record's space dropped.
};
inline constexpr int kTierMissKinds = 7;
TierMiss MissOf(StatusCode code);              // Requires: not kOk.
std::string_view TierMissName(TierMiss miss);  // "absent", "late" ...: for metrics and words.

struct TierStats {
  // What is there. A shared tier does not know: -1.
  int64_t records = -1;
  int64_t bytes = -1;
  int64_t budget_bytes = -1;
  int64_t evictions = 0;
  int64_t damaged = 0;  // Records whose size, checksum or MAC was wrong when any call met them; each was dropped.
  int64_t paused = 0;   // 1 while it is left alone because it did not answer (tier_guard.h).
  int64_t pauses = 0;   // Times that this began.

  // Calls that have ended, refused ones included.
  int64_t finds = 0;
  int64_t puts = 0;
  int64_t gets = 0;
  int64_t drops = 0;
  int64_t stored = 0;  // Puts that succeeded.
  int64_t hits = 0;    // Gets that succeeded.
  std::array<int64_t, kTierMissKinds> put_misses{};
  std::array<int64_t, kTierMissKinds> get_misses{};  // Gets and finds.
  int64_t bytes_written = 0;                         // Payload of stored.
  int64_t bytes_read = 0;                            // Payload of hits.

  // Over the last ten or so successful transfers, waiting in the queue not included; 0: none yet.
  double write_bytes_per_second = 0;
  double read_bytes_per_second = 0;

  int64_t in_flight = 0;
  int64_t in_flight_bytes = 0;  // Payloads and sinks that are held.

  // Of all kinds.
  int64_t all_put_misses() const { return std::accumulate(put_misses.begin(), put_misses.end(), int64_t{0}); }
  int64_t all_get_misses() const { return std::accumulate(get_misses.begin(), get_misses.end(), int64_t{0}); }
};

using TierDone = std::function<void(Status)>;
using TierFindDone = std::function<void(StatusOr<std::vector<TierRecord>>)>;
using TierGetDone = std::function<void(StatusOr<std::string>)>;

// Threads: any, unless an implementation says otherwise. `done` may call the tier again, but not destroy it.
// Destruction ends what is in flight with CANCELLED; every `done` has run when the destructor returns.
class Tier {
 public:
  virtual ~Tier() = default;

  // "ram", "disk", "remote": for metrics and messages.
  virtual std::string_view name() const = 0;

  // All records, oldest use first; a shared tier gives none. Reads every header and waits for it: at start only.
  virtual std::vector<TierRecord> Inventory() = 0;

  // Which of `keys` exist, in the order of `keys`, with their headers. None is an empty list.
  virtual Status Find(std::vector<TierKey> keys, TimeNs deadline, TierFindDone done) = 0;

  // Stores; a record of the same key is replaced. After an error the old one, the new one or none may be there.
  // Requires: the payload's spans sum up to record.payload_bytes.
  // Errors: RESOURCE_EXHAUSTED at once where queue or bytes in flight are at their limit, UNAVAILABLE where the tier is
  // paused; INVALID_ARGUMENT for a record beyond the limits above; through `done` those of TierMiss.
  virtual Status Put(TierRecord record, TierPayload payload, TimeNs deadline, TierDone done) = 0;

  // Fills `sink` and gives the header stored with it. Errors: RESOURCE_EXHAUSTED and UNAVAILABLE at once; through
  // `done` those of TierMiss; a payload that has not the size of the sink is DATA_LOSS.
  virtual Status Get(const TierKey& key, TierSink sink, TimeNs deadline, TierGetDone done) = 0;

  // Forgets every record of `of` that was put before this call, also by a Put that is still on its way (CANCELLED);
  // of a shared tier, by any instance. From `done` with OK on they do not come back, after a restart neither. Never
  // refused for want of room. Errors: UNAVAILABLE at once; through `done` those of TierMiss; the caller tries again.
  virtual Status Drop(const TierSpaces& of, TimeNs deadline, TierDone done) = 0;

  // Takes note that a record was used at `used_at`, where that is later than what is known; without I/O, so a disk
  // forgets it at the end of the process. Whether it is there or on its way: false where it went meanwhile, so who has
  // it puts it again. A shared tier does not know, takes no note and says true.
  virtual bool Use(const TierKey& key, TimeNs used_at) = 0;

  // What has gone since the last call without the caller's doing: evicted, or found damaged. A shared tier does not
  // know. At most a key for each record that was put or was there at the start.
  virtual std::vector<TierKey> TakeGone() = 0;
  // How long a record is kept after its Put where room is no matter; kNever: until it is evicted.
  virtual TimeNs keeps_for() const { return kNever; }

  // Whether what it holds is there for the next process.
  virtual bool outlives_process() const { return true; }

  // Whether it did not answer of late, so that calls are refused at once for a while: UNAVAILABLE.
  virtual bool is_paused() const { return false; }

  virtual TierStats Stats() const = 0;

  // Tiers without threads do here what is due at `now` (the simulation calls it at every step) and say when the next
  // thing is due. Tiers with threads: does nothing, kNever.
  virtual TimeNs Poll([[maybe_unused]] const TimeNs now) { return kNever; }
};

}  // namespace invar::cache
