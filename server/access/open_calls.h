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
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "config/config.h"
#include "server/access/rpc.h"

namespace invar::server {

// What one tenant may take of `whole`: all of it where there is one tenant, at least 1.
int64_t TenantShare(const config::Config& config, int64_t whole);

class OpenCall;

class OpenCalls {
 public:
  // What a call counts as. The tenant is empty where none is known.
  struct Claim {
    std::string tenant;
    Rpc rpc = Rpc::kGenerate;
    int64_t bytes = 0;  // Of its request, which gRPC keeps until the call is over, and of what it grows by.
  };
  // Judges a call and counts it, let in or not, while the OpenCall lives. `so_far`: what is known against it already,
  // or OK. Its status: `so_far`; RESOURCE_EXHAUSTED naming the limit. End the call unread then.
  [[nodiscard]] OpenCall Begin(Claim claim, const Status& so_far, const config::Config& config);

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
  friend class OpenCall;
  struct Held {
    RpcCounts calls;
    int64_t bytes = 0;
    void Add(const Claim& claim, int64_t sign);
  };
  // Whether `bytes` more of a tenant that holds `held` have room. Not asked where a call is its tenant's only one.
  Status JudgeBytes(int64_t bytes, int64_t held, const config::Config& config) REQUIRES_LOCK(mu_);
  Status JudgeCall(const Claim& claim, const config::Config& config) REQUIRES_LOCK(mu_);
  Status Grow(Claim& claim, int64_t bytes, const config::Config& config);
  void End(const Claim& claim, bool let_in);

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

// A call that is counted: from OpenCalls::Begin to its destruction, which is the last use of the calls by it, so that
// whoever waits for idleness may destroy them right after. Threads: its owner's.
class OpenCall {
 public:
  OpenCall(OpenCall&& other) noexcept
      : calls_(std::exchange(other.calls_, nullptr)),
        claim_(std::move(other.claim_)),
        status_(std::move(other.status_)),
        must_reset_(other.must_reset_) {}
  OpenCall& operator=(OpenCall&&) = delete;
  ~OpenCall() {
    if (calls_ != nullptr) calls_->End(claim_, let_in());
  }

  bool let_in() const { return status_.ok(); }
  const Status& status() const { return status_; }
  // Refused calls hold too much already: end this one without waiting for it to take its status.
  bool must_reset() const { return must_reset_; }
  Rpc rpc() const { return claim_.rpc; }

  // `bytes` more, of what gRPC keeps until the call is over. Requires: let_in().
  // Errors: RESOURCE_EXHAUSTED naming the limit; what should have been kept is to be dropped then.
  Status Grow(const int64_t bytes, const config::Config& config) { return calls_->Grow(claim_, bytes, config); }

 private:
  friend class OpenCalls;
  OpenCall(OpenCalls& calls, OpenCalls::Claim claim, Status status, const bool must_reset)
      : calls_(&calls), claim_(std::move(claim)), status_(std::move(status)), must_reset_(must_reset) {}

  OpenCalls* calls_;  // Null: moved from.
  OpenCalls::Claim claim_;
  Status status_;
  bool must_reset_;
};

}  // namespace invar::server
