// The claim of draft_share.h and the drafters' budget always say the same.
#include "engine/loop/draft_share.h"

namespace invar::engine {

DraftShare::DraftShare(const int64_t shared_bytes, cache::CacheManager& cache, cache::CacheMemory& drafts)
    : shared_bytes_(shared_bytes), cache_(cache), drafts_(drafts) {
  if (shared_bytes_ > 0) Take(shared_bytes_, /*now=*/0);
}

void DraftShare::Fit(const int64_t wanted_bytes, const int64_t free_bytes, const TimeNs now) {
  if (shared_bytes_ == 0) return;
  const int64_t have = drafters_bytes();
  const int64_t most = std::min(shared_bytes_, have + std::max<int64_t>(0, free_bytes));
  const int64_t bytes = std::clamp(wanted_bytes, drafts_.used_bytes(), std::max(most, drafts_.used_bytes()));
  if (bytes != have) Take(bytes, now);
}

void DraftShare::Take(const int64_t bytes, const TimeNs now) {
  claim_.reset();
  claim_.emplace(cache_.Reserve(bytes, now));
  drafts_.SetBudget(bytes);
}

}  // namespace invar::engine
