// The gRPC port since the process began, whatever model it has: calls that ended, connections that were closed.
#include "server/metrics/parts.h"

namespace invar::server {
namespace {

Axis CodeAxis() {
  Axis axis = AxisOf<StatusCode>("code", kCodeCount, StatusCodeName);
  axis.listed = false;
  return axis;
}

constexpr std::string_view NameOfRefusal(const Refusal refusal) {
  switch (refusal) {
    case Refusal::kTotal:
      return "total";
    case Refusal::kPerAddress:
      return "per_address";
    case Refusal::kFiles:
      return "files";
    case Refusal::kAbuse:
      return "abuse";
  }
  return {};
}
static_assert(NamesAll<Refusal>(kRefusalCount, NameOfRefusal));
static_assert(NamesAll<Rpc>(kRpcCount, [](const Rpc rpc) { return NameOf(rpc); }));

}  // namespace

Axis RpcAxis() {
  return AxisOf<Rpc>("rpc", kRpcCount, [](const Rpc rpc) { return NameOf(rpc); });
}

MetricsPart PortMetrics() {
  using S = MetricsSnapshot;
  return {.title = "The port",
          .of_model = false,
          .rows = {
              {"invar_rpcs_total",
               kCounter,
               {RpcAxis(), CodeAxis()},
               "Calls that ended, by rpc and the name of the gRPC code.",
               [](const S& s, const size_t rpc, const size_t code) -> std::optional<double> {
                 const int64_t count = s.events.calls[rpc][code];
                 if (count == 0 && code != 0) return std::nullopt;
                 return static_cast<double>(count);
               }},
              {"invar_connections_refused_total",
               kCounter,
               {AxisOf<Refusal>("reason", kRefusalCount, NameOfRefusal)},
               "Connections closed by a limit: total, per_address, files (open-file limit or "
               "fs.epoll.max_user_watches), abuse (too many cancelled "
               "calls).",
               [](const S& s, const size_t reason) { return s.events.refusals[reason]; }},
          }};
}

}  // namespace invar::server
