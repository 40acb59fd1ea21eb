// PrefixWriter: memory of prefixes on its way to the tiers, page by page and state by state, copied so that memory
// under I/O is never memory of the budget. What a tier has is not written again.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fingerprint.h"
#include "base/ids.h"
#include "cache/page_name.h"
#include "cache/scope.h"
#include "cache/tier_counts.h"
#include "cache/tiers/known_tier.h"
#include "cache/tiers/tier_events.h"

namespace invar::cache {

// A prefix to be written, its bytes borrowed: page p at `pages[p]`, state after `tokens.size()` tokens or empty, last
// used at `used_at`. `names`: of all whole pages.
struct OutgoingPrefix {
  const Scope& scope;
  std::vector<TokenId> tokens;
  std::vector<PageName> names;
  std::vector<std::span<const std::byte>> pages;
  std::span<const std::byte> state;
  TimeNs used_at = 0;
};

class PrefixWriter {
 public:
  struct Options {
    std::string identity;
    int64_t copy_bytes_max = 0;
    TimeNs deadline = 0;  // Of one record.
  };

  // Requires: `tiers` outlives this.
  PrefixWriter(Options options, std::span<KnownTier> tiers, std::shared_ptr<TierEvents> events);

  // Copies and queues for each tier what it has not of `prefix` yet. False: no room for something; tiers that are
  // paused are passed over.
  bool Write(const OutgoingPrefix& prefix, TimeNs now);
  // Records that are written from now on may take until `deadline`, where their own is earlier.
  void GiveTimeUntil(const TimeNs deadline) { given_until_ = deadline; }

  // Whether all that Write would give of `prefix` is in tiers that outlive the process, and not only on its way there.
  bool IsStored(const OutgoingPrefix& prefix, TimeNs now);

  const PrefixWriteCounts& counts() const { return counts_; }
  // How often a tier was given nothing because it is paused, or asks with one record at a time whether it is still.
  int64_t passed_over() const { return passed_over_; }

 private:
  bool WritePages(KnownTier& to, const OutgoingPrefix& prefix, const TierSpace& space, TimeNs now);
  bool WriteState(KnownTier& to, const OutgoingPrefix& prefix, const TierSpace& space, TimeNs now);
  Digest ChainBeforeTail(const OutgoingPrefix& prefix) const;
  // `believed`: the record that is not, where this fails.
  bool Put(KnownTier& to, TierRecord record, const std::vector<std::span<const std::byte>>& spans,
           const TierKey& believed, TimeNs now);

  // Set at construction.
  const Options options_;
  const std::span<KnownTier> tiers_;
  const std::shared_ptr<TierEvents> events_;  // With the tiers' threads.

  TimeNs given_until_ = 0;
  PrefixWriteCounts counts_;
  int64_t passed_over_ = 0;
};

}  // namespace invar::cache
