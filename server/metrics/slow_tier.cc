// Full KV in the slow tier, and the rounds over it.
#include "server/metrics/parts.h"

namespace invar::server {

MetricsPart SlowTierMetrics() {
  using S = MetricsSnapshot;
  return {
      .title = "Slow tier",
      .rows = {
          {"invar_slow_tier_requests", kGauge,
           "Requests whose full KV lies in the slow tier (engine.speculation.slow_tier) now.",
           [](const S& s) { return s.engine.slow_tier.away; }},
          {"invar_slow_tier_used_bytes", kGauge, "Bytes of the slow tier that they take.",
           [](const S& s) { return s.engine.slow_tier.used_bytes; }},
          {"invar_slow_tier_moved_out_total", kCounter, "Times full KV of a request moved there.",
           [](const S& s) { return s.engine.slow_tier.moved_out; }},
          {"invar_slow_tier_brought_back_total", kCounter, "Times it came back into engine.kv_budget as a whole.",
           [](const S& s) { return s.engine.slow_tier.brought_back; }},
          {"invar_slow_tier_written_bytes_total", kCounter, "Full KV written there.",
           [](const S& s) { return s.engine.slow_tier.written_bytes; }},
          {"invar_slow_tier_streams_total", kCounter, "Streams of a request's full KV into a forward that verifies.",
           [](const S& s) { return s.engine.slow_tier.streams; }},
          {"invar_slow_tier_streamed_bytes_total", kCounter, "Bytes of these streams.",
           [](const S& s) { return s.engine.slow_tier.streamed_bytes; }},
          {"invar_slow_tier_read_seconds_total", kCounter, "Time that reading them took, beside computing.",
           [](const S& s) { return ToSeconds(s.engine.slow_tier.read_ns); }},
          {"invar_slow_tier_stall_seconds_total", kCounter, "Time that forwards waited for a layer.",
           [](const S& s) { return ToSeconds(s.engine.slow_tier.stall_ns); }},
          {"invar_slow_tier_failures_total", kCounter,
           "Reads and writes of the slow tier that failed or gave other bytes than were written; what depended on them "
           "was computed again, with equal bits.",
           [](const S& s) { return s.engine.slow_tier.failures; }},
          {"invar_slow_tier_drafted_beside_streams_total", kCounter, "Tokens drafted while a stream was on its way.",
           [](const S& s) { return s.engine.slow_tier.drafted_beside_streams; }},
          {"invar_slow_tier_rounds_pay", kGauge,
           "1 while rounds over the slow tier are taken to pay; 0: requests that are there come back as there is room, "
           "and no more go.",
           [](const S& s) { return s.engine.slow_tier.staggered; }},
          {"invar_slow_tier_gain_ratio", kGauge,
           "Tokens a second expected of rounds over the slow tier, over those of plain decoding; 1 while nothing is "
           "measured.",
           [](const S& s) { return s.engine.slow_tier.gain; }},
      }};
}

}  // namespace invar::server
