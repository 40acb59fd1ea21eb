// The calls that are open and what they hold, together and of each tenant: the one place where a call is let in or
// refused. Where several tenants are configured, none takes more than its share of a limit, so that a flood of one
// leaves room for the others; a request whose tenant holds nothing else always has its room.
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "config/config.h"

namespace invar::server {

enum class CallKind { kGenerate, kUnary };

// What a call counts as. The tenant is empty where none is known.
struct OpenCall {
  std::string tenant;
  CallKind kind = CallKind::kUnary;
  int64_t request_bytes = 0;  // gRPC keeps the request until the call is over.
};

// What one tenant may take of `whole`: all of it where there is one tenant, at least 1.
int64_t TenantShare(const config::Config& config, int64_t whole);

class OpenCalls {
 public:
  // Counts the call, let in or not. RESOURCE_EXHAUSTED: end it unread.
  Status Begins(const OpenCall& call, const config::Config& config);
  // The last use of this by a call: whoever waits for idleness may destroy this right after.
  void Ends(const OpenCall& call);
  // Waits until no call of any kind is open, at most `timeout`. True when none is.
  bool WaitIdle(std::chrono::milliseconds timeout);

  int64_t generate_calls() const;
  int64_t request_bytes() const;
  // Calls refused because their tenant had its share, ever.
  int64_t share_refusals() const;

 private:
  struct Held {
    int64_t calls = 0;
    int64_t generate_calls = 0;
    int64_t request_bytes = 0;
    void Add(const OpenCall& call, int64_t sign);
  };

  mutable Mutex mu_;
  CondVar idle_;
  Held all_ GUARDED_BY(mu_);
  std::map<std::string, Held> tenants_ GUARDED_BY(mu_);  // Of those with open calls.
  int64_t share_refusals_ GUARDED_BY(mu_) = 0;
};

}  // namespace invar::server
