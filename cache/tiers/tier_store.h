// The synchronous inside of a tier: what a kind (ram.cc, disk.cc, resp.cc) implements. Queues, deadlines, limits and
// statistics are the same for all kinds and live in what drives a store: ThreadedTier in the daemon, SimulatedTier in
// the simulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

// The caller's memory of one call, reachable only while the call has not ended: a deadline can end it at any moment,
// and from then on nobody touches the memory, though a thread may still sit in the system call.
// Threads: any.
class TierTransfer {
 public:
  explicit TierTransfer(TimeNs deadline);  // Find, Drop: no memory.
  TierTransfer(TierPayload payload, TimeNs deadline);
  TierTransfer(TierSink sink, TimeNs deadline);
  TierTransfer(const TierTransfer&) = delete;
  TierTransfer& operator=(const TierTransfer&) = delete;

  TimeNs deadline() const { return deadline_; }
  // What is accepted later has a higher one: a Drop voids the Puts below it. The driver sets it before others see it.
  uint64_t sequence() const { return sequence_; }
  void Accept(const uint64_t sequence) { sequence_ = sequence; }
  int64_t bytes() const { return bytes_; }

  // Copies payload bytes from `offset` on into `to`. False: the call has ended; give up.
  [[nodiscard]] bool CopyFromPayload(int64_t offset, std::span<std::byte> to);
  // Copies `from` into the sink at `offset`. Only verified bytes may come here. False: the call has ended; give up.
  [[nodiscard]] bool CopyToSink(int64_t offset, std::span<const std::byte> from);

  // A record can be used while it is on its way. Use: takes note, where the record is neither there yet nor ended; else
  // false. LastUse: of all notes and of `put_with`, what it was put with. SettleUse: the same for good, under the lock
  // that then makes the record visible, so that every use reaches either the call or the record.
  [[nodiscard]] bool Use(TimeNs used_at);
  TimeNs LastUse(TimeNs put_with);
  TimeNs SettleUse(TimeNs put_with);

  // Ends the call and lets the keep-alive go. True for the first to end it: that one runs `done`.
  [[nodiscard]] bool End();
  bool ended();

 private:
  // Set at construction.
  const TimeNs deadline_;
  std::vector<int64_t> begins_;  // Of each span within the whole.
  int64_t bytes_ = 0;            // After begins_, which its computation fills.
  uint64_t sequence_ = 0;

  Mutex mu_;
  bool ended_ GUARDED_BY(mu_) = false;
  bool is_settled_ GUARDED_BY(mu_) = false;
  TimeNs used_at_ GUARDED_BY(mu_) = 0;
  std::vector<std::span<const std::byte>> payload_ GUARDED_BY(mu_);
  std::vector<std::span<std::byte>> sink_ GUARDED_BY(mu_);
  std::shared_ptr<const void> keep_alive_ GUARDED_BY(mu_);
};

// What a store gives back where CopyFromPayload or CopyToSink said that the call has ended; nobody sees it.
Status CallEnded();
// What a Put gives back whose space was dropped after it.
Status DroppedMeanwhile();

// What a tier holds for its callers at once, of reads, and as much again of writes; beyond that it refuses.
struct TierLimits {
  int64_t queue_max = 256;                     // Calls in flight; drops do not count.
  int64_t queue_bytes_max = int64_t{1} << 30;  // Payloads and sinks in flight; one call may always run alone.
};
// INVALID_ARGUMENT for a record beyond the limits of tier.h.
Status CheckRecord(const TierRecord& record);

struct TierContents {
  int64_t records = -1;
  int64_t bytes = -1;
  int64_t budget_bytes = -1;
  int64_t evictions = 0;
  int64_t damaged = 0;
};

// Threads: any number at once.
class TierStore {
 public:
  virtual ~TierStore() = default;
  virtual std::string_view name() const = 0;
  // For messages: says which one.
  virtual std::string title() const { return "the " + std::string(name()) + " tier"; }
  // Whether UNAVAILABLE and PERMISSION_DENIED say that every call would fail now, not only this one.
  virtual bool is_server() const { return false; }

  // As in Tier.
  virtual std::vector<TierRecord> Inventory() = 0;
  virtual StatusOr<std::vector<TierRecord>> Find(std::span<const TierKey> keys, TierTransfer& call) = 0;
  virtual Status Put(const TierRecord& record, TierTransfer& payload) = 0;
  virtual StatusOr<std::string> Get(const TierKey& key, TierTransfer& sink) = 0;
  // The Puts it voids are those with a lower sequence than `call`.
  virtual Status Drop(const TierSpaces& of, TierTransfer& call) = 0;
  // Of what is there; what is on its way is the driver's (puts_under_way.h).
  virtual bool Use(const TierKey&, TimeNs) { return true; }
  virtual std::vector<TierKey> TakeGone() { return {}; }
  virtual TimeNs keeps_for() const { return kNever; }
  virtual bool outlives_process() const { return true; }

  // Above the sequences of all that is there from before.
  virtual uint64_t first_sequence() const { return 1; }

  virtual TierContents Contents() const = 0;  // Cheap: no I/O, no lock that is held over I/O.
};

}  // namespace invar::cache
