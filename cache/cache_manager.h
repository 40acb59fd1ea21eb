// CacheManager: the memory of all sequences and of everything that can be reused. A sequence acquires a lease, extends
// it before each span, commits after it and releases it at the end; see CONTRACT.md for the order of calls.
//   Acquire -> (Extend -> Emit -> forward -> Commit)* -> Release
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/cache_memory.h"
#include "cache/flush.h"
#include "cache/lease.h"
#include "cache/placement_report.h"
#include "cache/prefix_match.h"
#include "cache/scope.h"
#include "cache/state_shape.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

struct CacheOptions {
  StateShape shape;
  int64_t budget_bytes = 0;  // Live sequences and everything cached.
  int32_t slots_without_bytes = 0;
  Backing backing = Backing::kMemory;
  std::string placement = "optimal-dp";  // One of PlacementNames() (checkpoint/placement.h).
  int32_t placement_slots = 8;           // Most checkpoints a prompt that Place() chooses.
  bool plans = true;                     // Learn where prefixes of a class are come back to (placements that can).
  std::string eviction = "duel";         // Or one of EvictionOrderNames() (evict/orders.h).
  double probation_share = 0.02;         // Of the budget: most that planned checkpoints hold before their first hit.
  std::string identity = {};             // Model fingerprint and numerics id: what tiers must agree in.
  std::function<void()> wake = {};       // A tier has finished something: TakeArrivals. Any thread.
  TimeNs tier_read_limit = int64_t{2} * 1'000'000'000;
  TimeNs tier_write_limit = int64_t{30} * 1'000'000'000;
};

struct PrefixQuery {
  Scope scope;
  std::span<const TokenId> tokens;  // Everything known of the sequence.
  int32_t prompt_tokens = 0;
  int32_t stable_tokens = 0;  // End of the part that a follow-up will repeat; 0: not known, all of the prompt.
  int32_t resume_limit = 0;   // Positions from here on must run: at most tokens - 1.
  bool read = true;           // Use what is there.
  bool write = true;          // Leave something.
  std::span<const int32_t> hints = {};  // Where the caller wants checkpoints.
};

// A state to be copied out of a span while it runs: after `after` tokens, to slot `to`.
struct StateEmission {
  int32_t after = 0;
  SlotId to;
};

// What a tier brought for the caller of Prefetch with this ticket: `tier` is empty where that was nothing.
struct Arrival {
  int64_t ticket = 0;
  std::string_view tier;
};

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
  // Writes what is only in memory to the tiers, the most recently used last, and waits for it until `deadline`.
  void Persist(const Clock& clock, TimeNs deadline);

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
  // The sequence stops running with `computed` tokens in KV and state: keeps both as `kind` where the lease writes.
  void Release(PrefixLease lease, std::span<const TokenId> computed, CheckpointKind kind, TimeNs now);

  // Forgets what is cached. Live sequences go on, and what they commit from then on is cached again.
  void Flush(const FlushOptions& what, TimeNs now);

  const CacheMemory& memory() const;
  PlacementReport Report() const;
  // Cached KV that no checkpoint makes usable: what the next pass frees first. Walks everything.
  int64_t DeadKvBytes() const;
  void CheckIntegrity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar::cache
