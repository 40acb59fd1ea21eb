// DraftShare: where there is a slow tier, drafters and full KV share memory. Views want it while rounds pay; where they
// do not, it would lie idle just when full KV is short of it. So what drafters may use is a claim on the memory of
// sequences, which grows by what is free there and shrinks down to what drafters hold.
// Threads: engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "cache/cache_manager.h"

namespace invar::engine {

class DraftShare {
 public:
  // `shared_bytes`: of the cache's memory, which has them on top of its own budget; 0: drafters have memory of their
  // own, which stays as it is. Effects: all of it is the drafters' at first. Requires: references outlive this.
  DraftShare(int64_t shared_bytes, cache::CacheManager& cache, cache::CacheMemory& drafts);

  // Makes the drafters' part as near to `wanted_bytes` as it gets with `free_bytes` that sequences do not need.
  void Fit(int64_t wanted_bytes, int64_t free_bytes, TimeNs now);

  int64_t shared_bytes() const { return shared_bytes_; }
  // What drafters have of it now.
  int64_t drafters_bytes() const { return claim_.has_value() ? claim_->bytes() : 0; }

 private:
  void Take(int64_t bytes, TimeNs now);

  // Set at construction.
  const int64_t shared_bytes_;
  cache::CacheManager& cache_;
  cache::CacheMemory& drafts_;

  std::optional<cache::ByteClaim> claim_;
};

}  // namespace invar::engine
