// The virtual token counter of tenant_shares.h.
#include "engine/schedule/tenant_shares.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace invar::engine {

void TenantShares::Arrive(const std::string& tenant) {
  Share& share = shares_[tenant];
  if (share.live == 0) {
    std::optional<int64_t> least;
    for (const auto& [name, other] : shares_) {
      if (other.live > 0) least = std::min(least.value_or(other.served), other.served);
    }
    share.served = std::max(share.served, least.value_or(last_left_));
  }
  ++share.live;
  ++live_;
}

void TenantShares::Leave(const std::string& tenant) {
  const auto found = shares_.find(tenant);
  Check(found != shares_.end() && found->second.live > 0, "a tenant leaves as often as it arrives", tenant);
  --live_;
  if (--found->second.live == 0) last_left_ = found->second.served;
}

void TenantShares::Charge(const std::string& tenant, const int64_t tokens) {
  const auto found = shares_.find(tenant);
  Check(found != shares_.end() && found->second.live > 0, "a charged tenant has a live request", tenant);
  found->second.served += tokens;
}

int64_t TenantShares::Served(const std::string& tenant) const {
  const auto found = shares_.find(tenant);
  Check(found != shares_.end() && found->second.live > 0, "a tenant asked for has a live request", tenant);
  return found->second.served;
}

}  // namespace invar::engine
