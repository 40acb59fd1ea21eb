// The calls that are open and what they hold, together and of each tenant: the one place where a call is let in or
// refused. Where several tenants are configured, none takes more than its share of a limit, so that a flood of one
// leaves room for the others; a request whose tenant holds nothing else always has its room.
// Calls that are refused stay open too until they have their status. They are counted apart: who is not let in takes
// nothing from those who are, and beyond a limit of their own such calls are reset without a status.
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "config/config.h"
#include "server/rpc.h"

namespace invar::server {

// What a call counts as. The tenant is empty where none is known.
struct OpenCall {
  std::string tenant;
  Rpc rpc = Rpc::kGenerate;
  int64_t bytes = 0;    // Of its request, which gRPC keeps until the call is over, and of its answer (Grows).
  bool let_in = false;  // Begins says.
};

// What one tenant may take of `whole`: all of it where there is one tenant, at least 1.
int64_t TenantShare(const config::Config& config, int64_t whole);

class OpenCalls {
 public:
  struct Verdict {
    Status status;
    bool reset = false;  // Refused calls hold too much already: end this one without waiting for it to take its status.
  };
  // Counts the call, let in or not, until Ends. `so_far`: what is known against it already, or OK.
  // Errors: `so_far`; RESOURCE_EXHAUSTED naming the limit. End the call unread then.
  Verdict Begins(OpenCall& call, const Status& so_far, const config::Config& config);
  // `bytes` more, of the answer that gRPC keeps until it is taken. Requires: `call` was let in.
  // Errors: RESOURCE_EXHAUSTED naming the limit; drop the answer then.
  Status Grows(OpenCall& call, int64_t bytes, const config::Config& config);
  // The last use of this by a call: whoever waits for idleness may destroy this right after.
  void Ends(const OpenCall& call);
  // Waits until no call is open, at most `timeout`. True when none is.
  bool WaitIdle(std::chrono::milliseconds timeout);

  struct Report {
    RpcCounts calls;            // Let in or not.
    int64_t bytes = 0;          // Of calls that were let in.
    int64_t refused_bytes = 0;  // Of calls that were not, and are open still.
    // Ever:
    int64_t bytes_refusals = 0;  // Calls refused for the bytes of all.
    int64_t queue_refusals = 0;  // Calls refused for the Generate calls of all.
    int64_t share_refusals = 0;  // Calls refused because their tenant had its share.
    int64_t resets = 0;          // Calls ended without a status.
  };
  Report report() const;

 private:
  struct Held {
    RpcCounts calls;
    int64_t bytes = 0;
    void Add(const OpenCall& call, int64_t sign);
  };
  // Whether `bytes` more of a tenant that holds `held` have room. Not asked where a call is its tenant's only one.
  Status JudgeBytes(int64_t bytes, int64_t held, const config::Config& config) REQUIRES_LOCK(mu_);
  Status JudgeCall(const OpenCall& call, const config::Config& config) REQUIRES_LOCK(mu_);

  mutable Mutex mu_;
  CondVar idle_;
  Held let_in_ GUARDED_BY(mu_);
  Held refused_ GUARDED_BY(mu_);
  std::map<std::string, Held> tenants_ GUARDED_BY(mu_);  // Of those with calls that were let in.
  int64_t bytes_refusals_ GUARDED_BY(mu_) = 0;
  int64_t queue_refusals_ GUARDED_BY(mu_) = 0;
  int64_t share_refusals_ GUARDED_BY(mu_) = 0;
  int64_t resets_ GUARDED_BY(mu_) = 0;
};

}  // namespace invar::server
