// Residents: whose full KV lies in the fast tier. Looks at the live sequences after they have drafted, asks
// PlanResidency() and moves what it says; then says whose KV streams into the next forward, where staging memory does
// not hold layers of all.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "cache/cache_manager.h"
#include "engine/loop/admission.h"
#include "engine/loop/live_sequences.h"
#include "engine/loop/sequence.h"
#include "engine/slow/residency.h"
#include "engine/slow/slow_tier.h"
#include "engine/speculate/speculator.h"

namespace invar::engine {

class Residents {
 public:
  // `tier` may be null: then all are residents. `eager`: whoever may leave does. Requires: references outlive this.
  Residents(SlowTier* tier, const bool eager, cache::CacheManager& cache, LiveSequences& live,
            const Speculator& speculator, Admission& admission)
      : tier_(tier), eager_(eager), cache_(cache), live_(live), speculator_(speculator), admission_(admission) {}

  // Before the plan of a step. True: somebody moves, or waits for a turn, so that a step follows in any case.
  bool Move();
  // What brings the KV of a sequence that is away into the forward of this step.
  std::unique_ptr<LayerStream> StreamOf(Sequence& sequence);
  // A stream of this step failed.
  void Failed(const Status& status) { tier_->Failed(status); }

  SlowTierStats stats() const;

 private:
  bool MayLeave(const Sequence& sequence) const;
  ResidentView ViewOf(Sequence& sequence) const;
  void GoOut(Sequence& sequence);
  bool GiveTurns();

  // Set at construction.
  SlowTier* const tier_;
  const bool eager_;
  cache::CacheManager& cache_;
  LiveSequences& live_;
  const Speculator& speculator_;
  Admission& admission_;

  int64_t staging_each_ = 0;  // Of this step's streams.
  int64_t turns_ = 0;
  std::map<SequenceId, int64_t> last_turn_;  // Of those that are away.
  std::vector<ResidentView> residents_;      // Kept between steps for its memory.
};

}  // namespace invar::engine
