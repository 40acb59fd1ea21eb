// A request is one span: all of its prompt that is not in the state it found.
#include "tools/cache_sim/replay.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace invar::cache_sim {
namespace {

// One running slot beside the pages of the prompt, and a copy of the page its match ends in.
bool FitsAlone(const TraceRequest& request, const cache::CacheOptions& options) {
  const int64_t pages = options.shape.PagesFor(request.input_tokens) + 1;
  return pages * options.shape.page_bytes + options.shape.state_bytes <= options.budget_bytes;
}

void Run(cache::CacheManager& cache, const TraceRequest& request, ReplayResult& result) {
  const std::vector<TokenId> tokens = PromptOf(request);
  const int32_t end = request.input_tokens;
  const TimeNs now = request.arrival;
  const int64_t passes = cache.Report().eviction_passes;
  cache::PrefixLease lease = cache.Acquire({.scope = {},
                                            .tokens = tokens,
                                            .prompt_tokens = end,
                                            .stable_tokens = std::min(end - end % kTraceBlockTokens, end - 1),
                                            .resume_limit = end - 1,
                                            .hints = {}},
                                           now);
  result.kv_match_tokens += lease.match().kv_tokens;
  result.state_match_tokens += lease.match().state_tokens;
  std::vector<cache::StateEmission> emissions;
  cache.Extend(lease, end, now);
  cache.Emit(lease, lease.match().state_tokens, end, now, emissions);
  // Nothing was published since the pass, so what is dead now is what the pass left.
  if (cache.Report().eviction_passes > passes) {
    result.dead_kv_bytes_max = std::max(result.dead_kv_bytes_max, cache.DeadKvBytes());
  }
  cache.Commit(lease, tokens, now);
}

}  // namespace

ReplayResult Replay(const Trace& trace, const cache::CacheOptions& options,
                    const std::function<void(int64_t done)>& progress) {
  cache::CacheManager cache(options);
  ReplayResult result;
  for (const TraceRequest& request : trace) {
    result.input_tokens += request.input_tokens;
    if (FitsAlone(request, options)) {
      Run(cache, request, result);
    } else {
      ++result.requests_too_large;
    }
    ++result.requests;
    if (progress) progress(result.requests);
  }
  result.report = cache.Report();
  return result;
}

}  // namespace invar::cache_sim
