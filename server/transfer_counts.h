// What became of the prefixes that other instances asked for: plain numbers for metrics.
#pragma once

#include <cstdint>

namespace invar::server {

// Counters, but for the last two. asked = sent + refused + failed + abandoned + expired + those that are open.
struct TransferCounts {
  int64_t asked = 0;
  int64_t sent = 0;        // Acknowledged by the consumer.
  int64_t refused = 0;     // Differs from us, may not, or no room.
  int64_t failed = 0;      // Could not be computed.
  int64_t abandoned = 0;   // The consumer gave up, went away or did not keep to the protocol.
  int64_t expired = 0;     // The consumer was silent for the lease.
  int64_t bytes = 0;       // Payload that was sent.
  int64_t held_bytes = 0;  // Copies of prefixes on their way.
  int64_t codes_kept_bytes = 0;
};

}  // namespace invar::server
