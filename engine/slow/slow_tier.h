// SlowTier: full KV of running sequences moves to the slow store and back, and streams from there into forwards. It
// does what is decided elsewhere (residency.h, loop/residents.h), counts it, and keeps away from a store that fails.
//
// What is away is exact: the same bytes come back, or nobody gets to see them. A sequence publishes what it has
// computed as it moves out, like everybody at any time; what it computes behind that is its own until all of it is
// back. Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/cache_manager.h"
#include "engine/slow/away_kv.h"
#include "engine/slow/layer_streams.h"
#include "engine/slow/slow_store.h"
#include "engine/slow_tier_options.h"
#include "engine/stats.h"
#include "kernels/numerics.h"
#include "models/model.h"

namespace invar::engine {

class SlowTier {
 public:
  // After a failure the store is left alone for so long: nobody moves out.
  static constexpr TimeNs kPauseNs = 10'000'000'000;

  SlowTier(std::unique_ptr<SlowStore> store, const SlowTierOptions& options, const models::ModelSpec& spec,
           cache::CacheManager& cache, const Clock& clock);

  // Whether sequences may move out now.
  bool IsOpen() const { return clock_.Now() >= open_from_; }
  // For a sequence of so many tokens.
  std::unique_ptr<AwayKv> Make(const int64_t tokens) {
    return std::make_unique<AwayKv>(*store_, parts_, static_cast<int32_t>(tokens / kernels::kPageTokens));
  }

  // Writes the sequence's next whole pages of its `computed` tokens, a step's worth of them; false: some are left, or
  // the store failed.
  bool Write(AwayKv& away, const cache::PrefixLease& lease, int32_t computed);
  // What is written goes from the fast tier; all of it was, or it grew by a page.
  void Release(AwayKv& away, cache::PrefixLease& lease, std::span<const TokenId> computed);
  // All of it is in the fast tier again, and the sequence publishes as before. False: the store failed, and nothing has
  // changed. Requires: live sequences leave room for its pages.
  bool Return(AwayKv& away, cache::PrefixLease& lease);

  // Bytes of staging memory that a stream takes at least; what is read in place takes none.
  int64_t LeastStagingBytes(const AwayKv& away) const {
    return reads_in_place() ? 0 : 2 * (away.PartBytes(0) + kBlockBytes);
  }
  int64_t staging_bytes() const { return staging_bytes_; }
  bool reads_in_place() const { return store_->maps() && !store_->reads_disk() && parts_.are_blocks(); }
  std::unique_ptr<LayerStream> Stream(const AwayKv& away, int64_t staging_bytes) {
    return streams_.Begin(away, staging_bytes);
  }
  // Once a step.
  void ReadBeside() { streams_.ReadBeside(); }
  bool LinkIsIdle() const { return streams_.IsIdle(); }
  // A stream failed: its sequence is computed again.
  void Failed(const Status& status);

  SlowTierStats stats() const;

 private:
  // Set at construction.
  const std::unique_ptr<SlowStore> store_;
  const int64_t staging_bytes_;
  const int64_t step_bytes_;
  const PageParts parts_;
  cache::CacheManager& cache_;
  const Clock& clock_;

  TimeNs open_from_ = 0;
  SlowTierStats stats_;
  BlockBuffer returning_;
  BlockBuffer bounce_;
  LayerStreams streams_;
};

}  // namespace invar::engine
