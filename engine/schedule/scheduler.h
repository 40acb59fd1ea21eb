// Plan(): which sequences get memory and which tokens run in the next step. A pure function of plain numbers: no model,
// no clock, no pools; its rules are table-tested.
//
// Rules, in order:
//   admit    the waiting request of highest priority, then of the least served tenant, then the oldest, while what it
//            does not share with running sequences fits beside what those still need. It may take memory from sequences
//            of strictly lower priority and from those whose reader has stalled for long. If it does not fit, nobody
//            passes it: large requests get their turn.
//   decode   sequences with one token to run, best rank first (rank: priority, then age).
//   prefill  sequences with more to run, in chunks, with what is left of the token budget.
//   drafts   of sequences that decode, best rank first, with what is left of tokens, rows, log rows and pages; a free
//            page only where one stays for everybody else who runs. A draft preempts and delays nobody.
// A sequence that needs a page where none is free takes those of a paused or lower-ranked one (preempted: it will be
// computed again), or waits. The best-ranked sequence can always get its pages, so something always advances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "engine/schedule/step.h"

namespace invar::engine {

// All are at least 1; what they are is the caller's to say.
struct SchedulerLimits {
  int32_t max_batch_tokens = 0;
  int32_t max_logits_rows = 0;
  int32_t prefill_chunk_tokens = 0;
  int32_t max_running = 0;
  int32_t page_tokens = 0;
  // Rows of state logs in one step, and what a log takes beyond its span's rows.
  int32_t max_log_rows = INT32_MAX;
  int32_t log_head_rows = 0;
};

struct SequenceView {
  SequenceId id;
  int32_t tenant = 0;  // Index into Snapshot::tenant_served.
  int32_t priority = 0;
  int64_t arrival = 0;        // Unique; smaller is older.
  bool paused = false;        // Its reader is behind, or its prefix on its way from a tier: it must not run.
  bool stands_aside = false;  // It has no use for a span in this step, and keeps its memory.
  bool yields = false;        // Paused so long that waiting requests may take its memory.
  int32_t computed = 0;       // Tokens whose KV and state exist.
  int32_t total = 0;          // Tokens known; computed < total.
  int32_t logits_from =
      0;  // First position whose logits row is wanted: total - 1, or earlier for prompt log-probabilities.
  // Of `computed`, those that take no places in its pages: of a sequence on a compressed view,
  // or whose old pages are away.
  int32_t saved_tokens = 0;
  int32_t span_end = INT32_MAX;  // No span of the next step may run beyond it; at least `computed`.
  // Most pages that it takes until its known tokens are computed: those behind them leave as it goes.
  int32_t pages_max = INT32_MAX;
  int32_t spare_pages = 0;  // Pages that must be free beside those of its span, for it to run at all,
  bool parts = false;       // and as many as it shares with running ones, which it then gives up.
  int32_t pages = 0;        // Held.
  int32_t own_pages = 0;    // What preempting it frees at once: of these, those held by nobody else, and its view's.
  // Pages that other running sequences hold too; of a waiting one, that it would share, 0 where that is not known.
  int32_t shared_pages = 0;
  int32_t drafted = 0;  // Tokens guessed to follow the known ones; where one token is left to run.
};

struct Snapshot {
  std::vector<SequenceView> running;  // Any order.
  std::vector<SequenceView> waiting;
  std::vector<int64_t> tenant_served;
  int32_t free_pages = 0;  // What only the cache holds counts as free.
  int32_t free_slots = 0;
};

// Whose turn it is, as an index into `waiting`; nullopt: nobody's.
std::optional<size_t> NextWaiting(const Snapshot& snapshot);

// Pages that those who run would take beyond what they hold, to be computed and to go on; and what the one whose turn
// it is would, where there is a place for it.
struct PagesWanted {
  int32_t running = 0;
  int32_t next = 0;
};
PagesWanted FindPagesWanted(const Snapshot& snapshot, const SchedulerLimits& limits);

// Requires: every sequence fits the pool when it is alone (checked at Submit); limits >= 1. Threads: any.
Step Plan(const Snapshot& snapshot, const SchedulerLimits& limits);

}  // namespace invar::engine
