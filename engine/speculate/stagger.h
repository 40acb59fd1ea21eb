// PlanStagger(): who drafts, whose full KV is streamed next, who verifies in the next step. While some requests draft
// on compressed KV in the fast tier, the full KV of others comes over the link and is verified: both are busy. A pure
// function of plain numbers, like Plan(): the engine and the simulated device call the same one.
//
//   kDraft --draft_min drafted--> kQueued --stream begins--> kFetching --stream is here--> kFetched --verify--> kDraft
//
// Staggered: a request goes on drafting while it waits for the link and while its KV comes, up to draft_max; the link
// serves in the order of the queue, so nobody starves and the phases spread by themselves. Synchronous: all draft, then
// all are streamed and verified, which pays where a forward is dearer than what it waits for.
// Source: VeriCache (arXiv 2605.17613). Threads: any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace invar::engine {

enum class RoundPhase { kDraft, kQueued, kFetching, kFetched };

struct RoundView {
  int64_t id = 0;
  RoundPhase phase = RoundPhase::kDraft;
  int32_t drafted = 0;
  int32_t draft_min = 0;  // The round asks for its verify from here on.
  int32_t draft_max = 0;  // At least draft_min.
  int64_t queued = 0;     // Order of joining the queue; unique among those queued.
  int64_t prefix = 0;     // Requests with an equal one share their slow-tier KV; 0: nobody's.
};

struct StaggerLimits {
  bool synchronous = false;
  int32_t streams_max = 4;  // On the way or waiting for their verify.
  // Streams that may begin in one step: of requests that are verified together, in one forward.
  int32_t streams_at_once = 1;
};

struct StaggerStep {
  std::vector<int64_t> draft;   // In this step; how many tokens each, the caller says.
  std::vector<int64_t> queue;   // Have drafted enough: they join the queue before the link is given away.
  std::vector<int64_t> stream;  // The streams to begin now: all they serve; empty: none.
  std::vector<int64_t> verify;
};

// `streams_open`: streams begun whose requests have not all been verified. `link_idle`: a stream may begin.
StaggerStep PlanStagger(std::span<const RoundView> rounds, bool link_idle, int32_t streams_open,
                        const StaggerLimits& limits);

}  // namespace invar::engine
