// What became of the prefixes that other instances asked for, and of those that this one gave up: plain numbers for
// metrics.
#pragma once

#include <array>
#include <cstdint>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/transfer_protocol.h"

namespace invar::server {

// Counters, but for the last two. asked = sent + refused + failed + aborted + abandoned + expired + those that are
// open.
struct TransferCounts {
  int64_t asked = 0;
  int64_t sent = 0;     // Acknowledged by the consumer.
  int64_t refused = 0;  // Differs from us, may not, or no room.
  int64_t failed = 0;   // Could not be computed.
  // The consumer gave up and said so, by reason.
  std::array<int64_t, engine::kAbortReasons> aborted = {};
  int64_t abandoned = 0;   // The consumer went away without a word or did not keep to the protocol.
  int64_t expired = 0;     // The consumer was silent for the lease.
  int64_t bytes = 0;       // Payload that was sent.
  int64_t held_bytes = 0;  // Copies of prefixes on their way.
  int64_t codes_kept_bytes = 0;
};

// Transfers that this instance gave up, and told the producer so.
struct TransferAborts {
  int64_t answered = 0;    // The producer has let go.
  int64_t unanswered = 0;  // It did not say so in time, and was cut.
};

// What became of requests that were run here for other instances. Counters: runs = refused + expired + ended otherwise
// + those that are open.
struct VerifyCounts {
  int64_t runs = 0;
  int64_t refused = 0;  // Differs from us, may not, or no room.
  int64_t expired = 0;  // The consumer was silent for the lease, or took nothing.
  int64_t tokens = 0;   // That were sent.
};

// Threads: any.
class VerifyTally {
 public:
  void Begun() {
    const MutexLock lock(mu_);
    ++counts_.runs;
  }
  void Ended(const Status& status) {
    const MutexLock lock(mu_);
    switch (status.code()) {
      case StatusCode::kFailedPrecondition:
      case StatusCode::kPermissionDenied:
      case StatusCode::kUnauthenticated:
      case StatusCode::kResourceExhausted:
        ++counts_.refused;
        return;
      case StatusCode::kUnavailable:
      case StatusCode::kAborted:
        ++counts_.expired;
        return;
      default:
        return;
    }
  }
  void Sent(const int64_t tokens) {
    const MutexLock lock(mu_);
    counts_.tokens += tokens;
  }
  VerifyCounts counts() const {
    const MutexLock lock(mu_);
    return counts_;
  }

 private:
  mutable Mutex mu_;
  VerifyCounts counts_ GUARDED_BY(mu_);
};

}  // namespace invar::server
