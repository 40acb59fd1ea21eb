// CacheManager: the memory of all sequences and of everything that can be reused. A sequence acquires a lease, extends
// it before each span, commits after it and releases it at the end; see CONTRACT.md for the order of calls.
//   Acquire -> (Extend -> Emit -> forward -> Commit)* -> Release
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/arrival.h"
#include "cache/cache_memory.h"
#include "cache/cache_options.h"
#include "cache/flush.h"
#include "cache/lease.h"
#include "cache/persist_report.h"
#include "cache/placement_report.h"
#include "cache/plan_report.h"
#include "cache/prefix_image.h"
#include "cache/prefix_query.h"
#include "cache/tiers/tier.h"
#include "cache/tree_walk.h"

namespace invar::cache {

class CacheManager {
 public:
  // `tiers`: slow places, the fastest first; none: what memory gives up is gone.
  explicit CacheManager(const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers = {});
  ~CacheManager();

  // Begins to bring what tiers have of `query` beyond memory. Gives the ticket TakeArrivals will name within the tiers'
  // read deadline; nullopt: nothing to wait for. `tokens_per_second`: the rate at which tokens are run instead, 0: not
  // known.
  std::optional<int64_t> Prefetch(const PrefixQuery& query, double tokens_per_second, TimeNs now);
  // What has come since the last call is in the tree now.
  std::vector<Arrival> TakeArrivals(TimeNs now);
  // When TakeArrivals is due at the latest, for tiers without threads; kNever.
  TimeNs next_arrival() const;
  // Writes what only memory holds to the tiers, the most recently used first, and waits for that and for what they
  // have to forget: until `deadline` or until `hurry` is asked for; says what of it is there then. Requires: tiers with
  // threads.
  PersistReport Persist(const Clock& clock, TimeNs deadline, const std::stop_token& hurry = {});

  // What Acquire would find in memory; changes nothing.
  PrefixMatch Lookup(const PrefixQuery& query) const;
  // A copy of what memory has of `query`: up to the deepest point at most at its resume_limit, here at most all of its
  // tokens. Pages from `first_page` on, or from the one that the point lies in where that is before. Nullopt: nothing.
  std::optional<PrefixImage> CopyCached(const PrefixQuery& query, int32_t first_page, TimeNs now);
  // Takes up what another instance computed for the first image.end of `tokens`, into memory that is free or only
  // cached. Where that does not suffice, or what the pages hang on has gone meanwhile, nothing is kept: false.
  bool Adopt(const Scope& scope, std::span<const TokenId> tokens, const PrefixImage& image, TimeNs now);

  // How many whole pages Acquire would share that running sequences hold, so that they take no more memory.
  int32_t LiveSharedPages(const PrefixQuery& query) const;
  // Memory for a sequence that starts to run: what is reusable of its tokens, and a slot whose state is that after
  // match().state_tokens tokens. Requires: live sequences leave room for one more slot and for the pages of `tokens`.
  PrefixLease Acquire(const PrefixQuery& query, TimeNs now);
  // Pages for positions [0, end). Requires: live sequences leave room for them.
  void Extend(PrefixLease& lease, int32_t end, TimeNs now);
  // The states to copy out while [first, end) runs, appended to `out` in the order of their positions. Only after all
  // spans of the step are extended: checkpoints take what is left.
  void Emit(PrefixLease& lease, int32_t first, int32_t end, TimeNs now, std::vector<StateEmission>& out);
  // The span has run: KV and state of `computed` tokens (all from the first on) exist. Publishes what others may use.
  void Commit(PrefixLease& lease, std::span<const TokenId> computed, TimeNs now);
  // The sequence goes on without the first `pages` of its pages: others may use the KV of its `computed` tokens, and
  // what it computes from now on is nobody's but its own. Extend counts from the first place of the pages it then has.
  void GiveUpPages(PrefixLease& lease, std::span<const TokenId> computed, int32_t pages, TimeNs now);
  // Pages that nobody has seen, for what was given up to come back into. Requires: live sequences leave room for them.
  std::vector<PageRef> TakePages(int32_t count, TimeNs now);
  // `pages` hold again, byte for byte, all that was given up: the sequence goes on as if nothing had been.
  void TakeBackPages(PrefixLease& lease, std::vector<PageRef> pages);
  // Bytes for what it goes on with. Requires: live sequences leave room for them.
  ByteClaim Reserve(int64_t bytes, TimeNs now);
  // The sequence stops running with `computed` tokens in KV and state: keeps both as `kind` where the lease writes.
  void Release(PrefixLease lease, std::span<const TokenId> computed, CheckpointKind kind, TimeNs now);

  // Forgets what is cached. Live sequences go on, and what they commit from then on is cached again.
  FlushReport Flush(const FlushOptions& what, TimeNs now);
  // How often Flush may have forgotten something of `tenant`: who brings something from outside must not bring back
  // what was forgotten meanwhile, and what others flush is nothing to it.
  int64_t flushes(const std::string& tenant) const;

  const CacheMemory& memory() const;
  PlacementReport Report() const;
  // Goes on with a walk over the tree, by at most about `nodes_max` of its nodes; other calls may come between.
  void Continue(TreeWalk& walk, int32_t nodes_max) const;
  // What a request would find in memory and where it would leave checkpoints if it came now, by the rules and the
  // knowledge that Acquire follows. Changes nothing that is cached. Cost: solves once for every placement, about 1 ms
  // at 32K tokens.
  PlanReport ExplainPlan(const PrefixQuery& query);
  // Cached KV that no checkpoint makes usable: what the next pass frees first. Walks everything.
  int64_t DeadKvBytes() const;
  // Recounts everything: blocks and tree, what eviction, planner and duel know, what is known of tiers. Stops the
  // process where something differs.
  void CheckIntegrity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar::cache
