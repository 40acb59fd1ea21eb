// Admission: what runs next. Looks at the live sequences, asks Plan() and does what it says of their memory; what it
// says of tokens is the caller's to run.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/cache_manager.h"
#include "cache/prefix_query.h"
#include "engine/loop/bind_model.h"
#include "engine/loop/draft_share.h"
#include "engine/loop/live_sequences.h"
#include "engine/loop/sequence.h"
#include "engine/request.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/step.h"
#include "engine/transfer/inbound_prefixes.h"

namespace invar::engine {

// A reader that is behind for so long gives its memory up to waiting requests: above the jitter of a network, so that
// short stalls do not cost a recomputation, and far below the time after which callers end it.
inline constexpr TimeNs kPauseGraceNs = 1'000'000'000;

// Of pages, in the fast tier.
struct MemoryNeed {
  int32_t free_pages = 0;
  PagesWanted wanted;
};

class Admission {
 public:
  // `reuses`: requests may read and write what is cached. Requires: references outlive this.
  Admission(const SchedulerLimits& limits, const MemoryPlan& plan, const bool reuses, const DraftShare& share,
            cache::CacheManager& cache, InboundPrefixes& inbound, LiveSequences& live, const Clock& clock)
      : limits_(limits),
        memory_plan_(plan),
        reuses_(reuses),
        share_(share),
        cache_(cache),
        inbound_(inbound),
        live_(live),
        clock_(clock) {}

  // The next step, its preemptions and admissions done. `prefill_rate`: tokens a second at which prompts are run, 0
  // where that is not known yet; decides whether tiers pay.
  Step PlanAndAdmit(double prefill_rate);

  // Before that: what there is room for, and what is asked for.
  MemoryNeed Need();

  // Pages that there are for sequences now.
  int32_t pages() const;
  // From now on nobody is admitted beside so many that run.
  void SetRunningMax(const int32_t running) { running_max_ = running; }

  // What a request of these tokens asks of the cache. Requires: the query lives no longer than both.
  cache::PrefixQuery QueryOf(const Request& request, const std::string& provenance, std::span<const TokenId> tokens,
                             int32_t prompt_tokens, int32_t resume_limit) const;

 private:
  void TakeSnapshot();
  void LookUpNext();
  bool AskElsewhere(const std::vector<SequenceId>& admitted, double prefill_rate);
  LocalLoad LoadOf(double prefill_rate) const;
  int32_t TenantIndex(const std::string& tenant);
  cache::PrefixQuery QueryOf(const Sequence& sequence) const;
  cache::PrefixQuery KnownOf(const Sequence& sequence) const;

  // Set at construction.
  const SchedulerLimits limits_;
  const MemoryPlan memory_plan_;
  const bool reuses_;
  const DraftShare& share_;
  cache::CacheManager& cache_;
  InboundPrefixes& inbound_;
  LiveSequences& live_;
  const Clock& clock_;

  int32_t running_max_ = INT32_MAX;
  Snapshot snapshot_;                 // Kept between steps for its memory.
  std::vector<std::string> tenants_;  // Of the snapshot, by index.
};

}  // namespace invar::engine
