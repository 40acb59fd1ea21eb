// SlowTierOptions: where full KV of those who draft on views lies (SPECULATION.md).
#pragma once

#include <cstdint>
#include <string>

#include "cache/make_tiers.h"

namespace invar::engine {

struct SlowTierOptions {
  std::string path;  // A folder; empty: there is no slow tier.
  int64_t budget_bytes = int64_t{16} << 30;
  bool direct = false;
  int64_t staging_bytes = int64_t{64} << 20;  // Memory for layers on their way.
  // Moved out a step: a few milliseconds of a page cache, so that nobody's token waits for another's move.
  int64_t step_bytes = int64_t{16} << 20;
  bool synchronous = false;           // All draft, then all are streamed and verified.
  double gap_s_max = 0;               // Longest time between two commits of a request; 0: any.
  bool eager = false;                 // Tests: whoever may move out does at once, and nobody comes back.
  bool reads_on_a_thread = true;      // Else runs repeat exactly: a layer a step, the rest when it is asked for.
  cache::FileLayer* files = nullptr;  // Outlives the engine; null: the system's.
};

}  // namespace invar::engine
