// Who has been served how much: the waiting request of the least served tenant goes next (within one priority).
// Counting served tokens instead of requests keeps a tenant with long prompts from crowding out the others. A tenant
// that comes back keeps what it was served, and at least the least of those present: nobody saves up credit while idle,
// and who keeps one request at a time does not shed its debt with each of them. Where nobody is present, the last who
// left sets that mark, so that a night alone is not held against a tenant the next day.
// Charged are prompts, once, and generated tokens: computing a prompt again after a preemption was the server's choice.
// Who is away is remembered only while that says more than the mark does: peers name tenants, as many as they like.
// Source: "Fairness in Serving Large Language Models" (Sheng et al., 2024), the virtual token counter.
// Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace invar::engine {

class TenantShares {
 public:
  // Tenants that are away and remembered, at most; of more the least served are forgotten, whose debt is smallest.
  static constexpr size_t kAwayMax = 1024;

  // One more live request of `tenant`.
  void Arrive(const std::string& tenant);
  // One less.
  void Leave(const std::string& tenant);
  void Charge(const std::string& tenant, int64_t tokens);
  // Tokens served, comparable between live tenants. Requires: `tenant` has a live request.
  int64_t Served(const std::string& tenant) const;
  // Whether no tenant has a live request.
  bool empty() const { return present_.empty(); }
  // Tenants that are away and remembered.
  size_t away() const { return away_.size(); }

 private:
  struct Share {
    int64_t served = 0;
    int64_t live = 0;  // Requests; above 0.
  };

  // What a tenant that comes has been served at least.
  int64_t Mark() const;
  void ForgetAway();

  std::map<std::string, Share> present_;
  std::map<std::string, int64_t> away_;  // What they were served.
  int64_t last_left_ = 0;                // Counter of the tenant whose last request ended last.
};

}  // namespace invar::engine
