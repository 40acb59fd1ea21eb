// Runs a trace through the real cache manager without a model and without memory behind its blocks: bytes are counted,
// tokens are compared, nothing is computed. One request after the other, at the trace's own times.
// What a trace does not say is left out: the tokens a request generated are unknown, so a request ends with its prompt,
// and the part of it that a follow-up repeats is the part in whole blocks (the follow-up's next block has another id).
#pragma once

#include <cstdint>
#include <functional>

#include "cache/cache_manager.h"
#include "tools/cache_sim/trace.h"

namespace invar::cache_sim {

// A budget that nothing is ever evicted from: 2^50 bytes.
inline constexpr int64_t kNoLimitBytes = int64_t{1} << 50;

struct ReplayResult {
  int64_t requests = 0;
  int64_t requests_too_large = 0;  // Larger than the whole budget: run without the cache.
  int64_t input_tokens = 0;
  int64_t state_match_tokens = 0;  // Of input_tokens, not run.
  int64_t kv_match_tokens = 0;     // Of input_tokens, with KV.
  int64_t dead_kv_bytes_max = 0;   // The most that any eviction pass left of KV no checkpoint makes usable.
  cache::PlacementReport report;   // At the end.

  double TokenHitRate() const {  // Percent.
    return input_tokens == 0 ? 0 : 100.0 * static_cast<double>(state_match_tokens) / static_cast<double>(input_tokens);
  }
};

// `options` with budget and shape set. `progress` is told of each request done.
ReplayResult Replay(const Trace& trace, const cache::CacheOptions& options,
                    const std::function<void(int64_t done)>& progress = {});

}  // namespace invar::cache_sim
