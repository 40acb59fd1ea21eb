// The gRPC port since the process began, whatever model it has: calls that ended, connections that were closed.
#include "server/metrics/parts.h"

namespace invar::server {
namespace {

Axis CodeAxis() {
  Axis axis{.label = "code"};
  for (int code = 0; code < kCodeCount; ++code) axis.values.push_back(StatusCodeName(static_cast<StatusCode>(code)));
  axis.listed = false;
  return axis;
}

}  // namespace

MetricsPart PortMetrics() {
  using S = MetricsSnapshot;
  return {.title = "The port",
          .of_model = false,
          .rows = {
              {"invar_rpcs_total",
               kCounter,
               {{"rpc", {kRpcNames.begin(), kRpcNames.end()}}, CodeAxis()},
               "Calls that ended, by rpc and the name of the gRPC code.",
               [](const S& s, const size_t rpc, const size_t code) -> std::optional<double> {
                 const int64_t count = s.events.calls[rpc][code];
                 if (count == 0 && code != 0) return std::nullopt;
                 return static_cast<double>(count);
               }},
              {"invar_connections_refused_total",
               kCounter,
               {{"reason", {"total", "per_address", "files", "abuse"}}},
               "Connections closed by a limit: total, per_address, files (open-file limit), abuse (too many cancelled "
               "calls).",
               [](const S& s, const size_t reason) { return s.events.refusals[reason]; }},
          }};
}

}  // namespace invar::server
