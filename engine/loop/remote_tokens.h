// RemoteTokens: what sequences that wait for their prefix get meanwhile of a run where it lies (engine/remote_run.h).
// Their tokens grow as if they had been sampled here; once admitted, those are run as the known tokens of a preempted
// sequence are, and give the same bits. Where a view of the prefix has come, the sequence drafts on it, a forward a
// step, and its guesses go where the run is.
// Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/cache_memory.h"
#include "engine/loop/live_sequences.h"
#include "engine/speculate/arrived_view.h"
#include "engine/stats.h"
#include "engine/transfer/inbound_prefixes.h"
#include "models/model.h"

namespace invar::engine {

class RemoteTokens {
 public:
  struct Limits {
    int32_t rows_max = 0;          // Of one forward.
    int32_t draft_tokens_max = 0;  // Of one draft; 0: none are made.
  };
  // `own`: memory of drafters. Requires: references outlive this.
  RemoteTokens(const Limits& limits, models::Model& model, cache::CacheMemory& own, LiveSequences& live,
               InboundPrefixes& inbound, Speculator& speculator, const Clock& clock, EngineStats& stats)
      : limits_(limits),
        model_(model),
        own_(own),
        live_(live),
        inbound_(inbound),
        speculator_(speculator),
        clock_(clock),
        stats_(stats) {}

  // Takes what has come for whoever keeps up with it, and drafts on. Effects: pushes it, ends sequences whose output
  // ends with it, runs forwards of drafts. False: there was nothing to do.
  bool Take();

  // Of `own`.
  int64_t bytes() const;

 private:
  struct Drafting {
    std::unique_ptr<ArrivedView> view;
    size_t known = 0;  // Tokens that the draft goes on from.
    std::vector<TokenId> draft = {};
    bool is_sent = false;
  };
  bool TakeFor(Sequence& sequence, RemoteRun& run);
  bool DraftFor(Sequence& sequence, RemoteRun& run);
  // Null: there is none, or no memory for it.
  Drafting* FindOrMake(const Sequence& sequence, RemoteRun& run);
  // Tokens have come behind a draft: where one was none of its guesses, or all of them have come and one more, it is
  // judged, and the next one begins. Those that were right come one after another.
  void Judge(const Sequence& sequence, Drafting& drafting);

  // Set at construction.
  const Limits limits_;
  models::Model& model_;
  cache::CacheMemory& own_;
  LiveSequences& live_;
  InboundPrefixes& inbound_;
  Speculator& speculator_;
  const Clock& clock_;
  EngineStats& stats_;

  std::map<SequenceId, Drafting> drafting_;  // Of those that wait, and of who has ended since the last step.
};

}  // namespace invar::engine
