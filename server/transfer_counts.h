// What became of the prefixes that other instances asked for, and of those that this one gave up: plain numbers for
// metrics.
#pragma once

#include <array>
#include <cstdint>

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

}  // namespace invar::server
