// Calls: what is open, what was refused and by which limit.
#include "server/metrics/parts.h"

namespace invar::server {

MetricsPart CallMetrics() {
  using S = MetricsSnapshot;
  return {
      .title = "Calls",
      .rows = {
          {"invar_serving", kGauge, "1 while requests are taken, 0 while loading or draining.",
           [](const S& s) { return s.serving; }},
          {"invar_draining", kGauge, "1 after a stop signal.", [](const S& s) { return s.draining; }},
          {"invar_connections_open", kGauge, "Connections of the gRPC port.",
           [](const S& s) { return s.connections_open; }},
          {"invar_calls_open",
           kGauge,
           {RpcAxis()},
           "Calls that have not ended, let in or not. A drain waits for all of them.",
           [](const S& s, const size_t i) { return s.calls.calls.of[i]; }},
          {"invar_open_request_bytes", kGauge,
           "Memory of the requests, and of the answers of unary calls, of all open calls that were let in; "
           "limits.open_request_bytes_max bounds it.",
           [](const S& s) { return s.calls.bytes; }},
          {"invar_refused_request_bytes", kGauge,
           "Memory of the requests of refused calls that have not taken their status yet; "
           "limits.refused_request_bytes_max bounds it.",
           [](const S& s) { return s.calls.refused_bytes; }},
          {"invar_refused_resets_total", kCounter,
           "Refused calls that were ended without a status, since refused calls held limits.refused_request_bytes_max.",
           [](const S& s) { return s.calls.resets; }},
          {"invar_limit_refusals_total",
           kCounter,
           {{"limit", {"open_request_bytes_max", "preparing_max", "queue_max"}}},
           "Calls refused because all calls together were at this limit of the configuration's section limits, or, of "
           "queue_max, of its section engine.",
           [](const S& s, const size_t i) {
             return i == 0 ? s.calls.bytes_refusals : i == 1 ? s.preparing.refusals : s.calls.queue_refusals;
           }},
          {"invar_calls_preparing", kGauge,
           "Calls that wait to be tokenized or rendered; limits.preparing_max bounds them.",
           [](const S& s) { return s.preparing.waiting; }},
          {"invar_tenant_share_refusals_total", kCounter,
           "Calls refused because their tenant held its limits.tenant_share_percent of open calls, of their bytes or "
           "of the calls that wait to be prepared.",
           [](const S& s) { return s.calls.share_refusals + s.preparing.share_refusals; }},
      }};
}

}  // namespace invar::server
