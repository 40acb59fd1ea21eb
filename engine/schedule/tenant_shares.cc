// The virtual token counter of tenant_shares.h.
#include "engine/schedule/tenant_shares.h"

#include <algorithm>

#include "base/check.h"

namespace invar::engine {

void TenantShares::Arrive(const std::string& tenant) {
  if (const auto found = present_.find(tenant); found != present_.end()) {
    ++found->second.live;
    return;
  }
  int64_t served = Mark();
  if (const auto known = away_.find(tenant); known != away_.end()) {
    served = std::max(served, known->second);
    away_.erase(known);
  }
  present_[tenant] = {.served = served, .live = 1};
}

void TenantShares::Leave(const std::string& tenant) {
  const auto found = present_.find(tenant);
  Check(found != present_.end(), "a tenant leaves as often as it arrives", tenant);
  if (--found->second.live > 0) return;
  last_left_ = found->second.served;
  present_.erase(found);
  away_[tenant] = last_left_;
  ForgetAway();
}

void TenantShares::Charge(const std::string& tenant, const int64_t tokens) {
  const auto found = present_.find(tenant);
  Check(found != present_.end(), "a charged tenant has a live request", tenant);
  found->second.served += tokens;
}

int64_t TenantShares::Served(const std::string& tenant) const {
  const auto found = present_.find(tenant);
  Check(found != present_.end(), "a tenant asked for has a live request", tenant);
  return found->second.served;
}

int64_t TenantShares::Mark() const {
  if (present_.empty()) return last_left_;
  const auto least = std::min_element(present_.begin(), present_.end(),
                                      [](const auto& a, const auto& b) { return a.second.served < b.second.served; });
  return least->second.served;
}

void TenantShares::ForgetAway() {
  const int64_t mark = Mark();
  std::erase_if(away_, [mark](const auto& entry) { return entry.second <= mark; });
  while (away_.size() > kAwayMax) {
    away_.erase(
        std::min_element(away_.begin(), away_.end(), [](const auto& a, const auto& b) { return a.second < b.second; }));
  }
}

}  // namespace invar::engine
