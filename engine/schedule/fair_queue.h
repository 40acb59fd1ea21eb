// Who has been served how much: the waiting request of the least served tenant goes next (within one priority).
// Counting served tokens instead of requests keeps a tenant with long prompts from crowding out the others; a tenant
// that arrives starts at the least served of those present, so that nobody saves up credit while idle. Source:
// "Fairness in Serving Large Language Models" (Sheng et al., 2024), the virtual token counter. Threads: engine thread
// only.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace invar::engine {

class TenantShares {
 public:
  // One more live request of `tenant`.
  void Arrive(const std::string& tenant);
  // One less; a tenant without live requests is forgotten, so that memory is bounded by live requests.
  void Leave(const std::string& tenant);
  void Charge(const std::string& tenant, int64_t tokens);
  // Tokens served, comparable between live tenants. Requires: `tenant` has a live request.
  int64_t Served(const std::string& tenant) const;
  bool empty() const { return shares_.empty(); }

 private:
  struct Share {
    int64_t served = 0;
    int64_t live = 0;
  };
  std::map<std::string, Share> shares_;
};

}  // namespace invar::engine
