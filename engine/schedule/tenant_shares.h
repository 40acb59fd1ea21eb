// Who has been served how much: the waiting request of the least served tenant goes next (within one priority).
// Counting served tokens instead of requests keeps a tenant with long prompts from crowding out the others. A tenant
// that comes back keeps what it was served, and at least the least of those present: nobody saves up credit while idle,
// and who keeps one request at a time does not shed its debt with each of them. Where nobody is present, the last who
// left sets that mark, so that a night alone is not held against a tenant the next day.
// Charged are prompts, once, and generated tokens: computing a prompt again after a preemption was the server's choice.
// Source: "Fairness in Serving Large Language Models" (Sheng et al., 2024), the virtual token counter.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace invar::engine {

class TenantShares {
 public:
  // One more live request of `tenant`.
  void Arrive(const std::string& tenant);
  // One less. Counters stay: tenants are the finite list of the configuration.
  void Leave(const std::string& tenant);
  void Charge(const std::string& tenant, int64_t tokens);
  // Tokens served, comparable between live tenants. Requires: `tenant` has a live request.
  int64_t Served(const std::string& tenant) const;
  // Whether no tenant has a live request.
  bool empty() const { return live_ == 0; }

 private:
  struct Share {
    int64_t served = 0;
    int64_t live = 0;
  };
  std::map<std::string, Share> shares_;
  int64_t live_ = 0;       // Requests of all tenants.
  int64_t last_left_ = 0;  // Counter of the tenant whose last request ended last.
};

}  // namespace invar::engine
