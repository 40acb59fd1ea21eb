// PrefixLoader: prefixes on their way from the tiers to memory. A load looks along its own tokens for the deepest
// resume point that is known (shared tiers are asked first), reads it, checks it, and ends; where the copy of all of it
// has no room, it comes in windows, each of which ends at a resume point:
//   Begin -> [find] -> read a window -> Take -> (memory adopts it) -> Continue -> read the next ... -> Take
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/flush.h"
#include "cache/prefix_image.h"
#include "cache/prefix_match.h"
#include "cache/scope.h"
#include "cache/state_shape.h"
#include "cache/tier_counts.h"
#include "cache/tiers/known_tier.h"
#include "cache/tiers/tier_events.h"

namespace invar::cache {

// What a window of a load brought.
struct LoadedWindow {
  int64_t ticket = 0;
  Scope scope;
  std::vector<TokenId> tokens = {};  // All that was asked for.
  int32_t limit = 0;                 // As asked.
  PrefixImage image = {};
  std::string_view tier = {};  // Of the slowest part; empty: nothing came.
  bool has_more = false;       // Continue can bring more.
};

class PrefixLoader {
 public:
  struct Options {
    StateShape shape;
    std::string identity;
    int64_t copy_bytes_max = 0;
    TimeNs deadline = 0;  // Of a load, windows together.
  };

  // Requires: `tiers` outlives this.
  PrefixLoader(Options options, std::span<KnownTier> tiers, std::shared_ptr<TierEvents> events);
  ~PrefixLoader();

  // Begins to read the deepest resume point beyond `have` that lies at most at `limit` and pays: `tokens_per_second` is
  // the rate at which tokens are run instead (0: not known, everything pays). Gives the ticket that Take will name,
  // within the deadline; nullopt: there is nothing to wait for.
  std::optional<int64_t> Begin(const Scope& scope, std::span<const TokenId> tokens, int32_t limit,
                               const PrefixMatch& have, double tokens_per_second, TimeNs now);
  // Goes on with a load that has more, from what memory has now. False: the load has ended, also where that is no more
  // than before.
  bool Continue(int64_t ticket, const PrefixMatch& have, TimeNs now);
  // What has come or ended since the last call, failures included. Loads that have more wait for Continue.
  std::vector<LoadedWindow> Take();
  // Loads of what is flushed bring nothing.
  void Drop(const FlushOptions& of);

  const PrefixLoadCounts& counts() const { return counts_; }
  void CheckIntegrity() const;

 private:
  struct Load;
  struct Part;
  struct Found;

  Found Search(const Load& load, TimeNs now) const;
  bool Pays(const Found& found, const Load& load) const;
  bool BeginReads(Load& load, TimeNs now);
  bool BeginFind(Load& load, KnownTier& tier, TimeNs now);
  void Learn(const TierRecord& record, KnownTier& tier, const Load& load, TimeNs now);
  void FoundRecords(Load& load, KnownTier& tier, const StatusOr<std::vector<TierRecord>>& records, TimeNs now);
  void IssueReads(Load& load);
  void PartDone(Load& load, size_t part, const StatusOr<std::string>& header);
  void EndWindow(Load& load);

  // Set at construction.
  const Options options_;
  const std::span<KnownTier> tiers_;
  const std::shared_ptr<TierEvents> events_;  // With the tiers' threads.

  int64_t copy_bytes_ = 0;                          // Of windows under way.
  std::map<int64_t, std::unique_ptr<Load>> loads_;  // By ticket.
  std::vector<LoadedWindow> loaded_;                // Not taken yet.
  int64_t last_ticket_ = 0;
  PrefixLoadCounts counts_;
};

}  // namespace invar::cache
