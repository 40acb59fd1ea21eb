// The virtual token counter of fair_queue.h.
#include "engine/schedule/fair_queue.h"

#include <algorithm>

#include "base/check.h"

namespace invar::engine {

void TenantShares::Arrive(const std::string& tenant) {
  const auto found = shares_.find(tenant);
  if (found != shares_.end()) {
    ++found->second.live;
    return;
  }
  const auto least = std::min_element(shares_.begin(), shares_.end(),
                                      [](const auto& a, const auto& b) { return a.second.served < b.second.served; });
  shares_[tenant] = {.served = least == shares_.end() ? 0 : least->second.served, .live = 1};
}

void TenantShares::Leave(const std::string& tenant) {
  const auto found = shares_.find(tenant);
  Check(found != shares_.end(), "a tenant leaves as often as it arrives", tenant);
  if (--found->second.live == 0) shares_.erase(found);
}

void TenantShares::Charge(const std::string& tenant, const int64_t tokens) {
  const auto found = shares_.find(tenant);
  Check(found != shares_.end(), "a charged tenant has a live request", tenant);
  found->second.served += tokens;
}

int64_t TenantShares::Served(const std::string& tenant) const {
  const auto found = shares_.find(tenant);
  Check(found != shares_.end(), "a tenant asked for has a live request", tenant);
  return found->second.served;
}

}  // namespace invar::engine
