// Residents: whose full KV lies in the fast tier. Looks at the live sequences after they have drafted, asks
// PlanResidency() and moves what it says, as far as rounds pay (rounds.h).
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/cache_manager.h"
#include "engine/loop/admission.h"
#include "engine/loop/draft_share.h"
#include "engine/loop/live_sequences.h"
#include "engine/loop/rounds.h"
#include "engine/loop/sequence.h"
#include "engine/slow/residency.h"
#include "engine/slow/slow_tier.h"
#include "engine/speculate/speculator.h"

namespace invar::engine {

class Residents {
 public:
  // `tier` may be null: then all are residents. `eager`: whoever may leave does. Requires: references outlive this.
  // `working_pages`: that a prompt holds which moves out as it is run.
  Residents(SlowTier* tier, const bool eager, const int32_t working_pages, DraftShare& share,
            cache::CacheManager& cache, LiveSequences& live, Speculator& speculator, Admission& admission,
            const Rounds& rounds, const Clock& clock)
      : tier_(tier),
        eager_(eager),
        working_pages_(working_pages),
        share_(share),
        cache_(cache),
        live_(live),
        speculator_(speculator),
        admission_(admission),
        rounds_(rounds),
        clock_(clock) {}

  // Before the plan of a step. True: somebody moves, so that a step follows in any case.
  bool Move();
  // The sequence has ended: what is away comes back to be published with the rest, where there is room for it.
  void ComeBackAtEnd(Sequence& sequence);
  // A stream of this step failed.
  void Failed(const Status& status) { tier_->Failed(status); }

  SlowTierStats stats() const;

 private:
  bool Moves() const { return (rounds_.on() || eager_) && tier_->IsOpen(); }
  bool MayBeAway(const Sequence& sequence) const;
  bool MayLeave(const Sequence& sequence) const;
  bool HasRoomForView(const Sequence& sequence, int64_t beside_bytes) const;
  ResidentView ViewOf(Sequence& sequence) const;
  bool GoOut(Sequence& sequence);
  bool GoOutInPrefill(Sequence& sequence);
  void WriteWholePages(Sequence& sequence);
  bool MakeViewReady(Sequence& sequence);
  void ShareMemory();
  void DropViewInTheWay(const MemoryNeed& need);
  void LetEnter(const MemoryNeed& need, bool any_away);
  int32_t Wanted(const MemoryNeed& need, bool any_away) const;

  // Set at construction.
  SlowTier* const tier_;
  const bool eager_;
  const int32_t working_pages_;
  DraftShare& share_;
  cache::CacheManager& cache_;
  LiveSequences& live_;
  Speculator& speculator_;
  Admission& admission_;
  const Rounds& rounds_;
  const Clock& clock_;

  bool makes_view_ = false;              // In this step: views take long to make.
  std::vector<ResidentView> residents_;  // Kept between steps for its memory.
};

}  // namespace invar::engine
