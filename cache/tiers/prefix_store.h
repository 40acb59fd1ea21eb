// PrefixStore: prefixes in tiers behind memory. What memory gives up is written page by page and checkpoint by
// checkpoint under keys made of the tokens that lead to it (prefix_keys.h); what a request lacks is looked for along
// its own tokens, read, checked and handed back to be put into the tree.
//   prefix_writer.h   out        prefix_loader.h   in        known_records.h   what is where
// Payloads are copied on the way out and in: memory under I/O is never memory of the budget, so the engine's promises
// to running sequences do not depend on a disk. `copy_bytes_max` bounds the copies of either way, except
// of one that is alone.
// Threads: engine thread only; `wake` is called from threads of the tiers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/flush.h"
#include "cache/prefix_match.h"
#include "cache/scope.h"
#include "cache/state_shape.h"
#include "cache/tiers/known_tier.h"
#include "cache/tiers/prefix_loader.h"
#include "cache/tiers/prefix_writer.h"
#include "cache/tiers/space_drops.h"
#include "cache/tiers/tier.h"
#include "cache/tiers/tier_events.h"

namespace invar::cache {

struct PrefixStoreOptions {
  StateShape shape;
  std::string identity;        // Model fingerprint and numerics id: bits of another never match.
  int64_t copy_bytes_max = 0;  // Copies under way, of reads, and as much again of writes.
  TierDeadlines deadlines;
};

class PrefixStore {
 public:
  // Reads the tiers' inventories. Requires: what `wake` needs outlives this. `tiers`: fastest first.
  PrefixStore(const PrefixStoreOptions& options, std::vector<std::unique_ptr<Tier>> tiers, std::function<void()> wake);
  ~PrefixStore();

  bool empty() const { return tiers_.empty(); }
  // Whether something of it is there for the next process.
  bool outlives_process() const;
  // Whether a tier is left alone because it does not answer.
  bool is_paused() const;

  PrefixWriter& writer() { return writer_; }
  PrefixLoader& loader() { return loader_; }

  // Lets tiers without threads work, and takes note of what has ended. Loads that have come: loader().Take().
  void Work(TimeNs now);
  // When Work must be called though nothing has ended; kNever.
  TimeNs next_work() const { return next_work_; }

  // Forgets what was written for the scopes of tenant and salt, or (none) of all; writes and loads of them that are
  // under way come to nothing. Takes effect here at once; a tier is told until it confirms.
  void Drop(const FlushOptions& of, TimeNs now);

  // Whether tiers have still something to store or to forget.
  bool is_settling() const { return events_->writing() > 0 || drops_.pending() > 0; }
  int64_t writing() const { return events_->writing(); }
  // Waits until more than `ended` writes or drops have. False: `deadline` or `hurry` came first.
  int64_t ended() const { return events_->ended(); }
  bool AwaitEnd(int64_t ended, const Clock& clock, TimeNs deadline, const std::stop_token& hurry) const {
    return events_->AwaitEnd(ended, clock, deadline, hurry);
  }

  // Recounts what is known of the tiers and what copies hold; stops the process where something differs.
  void CheckIntegrity() const;

  const PrefixWriteCounts& writes() const { return writer_.counts(); }
  int64_t passed_over() const { return writer_.passed_over(); }
  const PrefixLoadCounts& loads() const { return loader_.counts(); }
  std::vector<std::pair<std::string_view, TierStats>> Stats() const;

 private:
  const std::shared_ptr<TierEvents> events_;  // With the tiers' threads.
  std::vector<KnownTier> tiers_;              // Their number is set at construction.
  PrefixWriter writer_;
  PrefixLoader loader_;
  SpaceDrops drops_;
  TimeNs next_work_ = kNever;
};

}  // namespace invar::cache
