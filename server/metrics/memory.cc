// Memory of live requests.
#include <algorithm>

#include "server/metrics/parts.h"

namespace invar::server {
namespace {

double Share(const int64_t part, const int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

int64_t UsedOrFree(const int64_t used, const int64_t total, const size_t i) { return i == 0 ? used : total - used; }

}  // namespace

MetricsPart MemoryMetrics() {
  using S = MetricsSnapshot;
  const Axis used_or_free{.label = "state", .values = {"used", "free"}};
  return {.title = "Memory",
          .rows = {
              {MetricName{"invar_kv_usage_ratio", "vllm:kv_cache_usage_perc"}, kGauge,
               "Used share of attention pages or of recurrent slots, whichever is higher; 1 is full.",
               [](const S& s) {
                 // Of the pool that is nearer to its end: routers that see only one would overload hybrids.
                 return std::max(Share(s.engine.pages_used, s.engine.pages_total),
                                 Share(s.engine.slots_used, s.engine.slots_total));
               }},
              {"invar_kv_pages",
               kGauge,
               {used_or_free},
               "Pages of attention KV.",
               [](const S& s, const size_t i) { return UsedOrFree(s.engine.pages_used, s.engine.pages_total, i); }},
              {"invar_recurrent_slots",
               kGauge,
               {used_or_free},
               "Slots of recurrent state.",
               [](const S& s, const size_t i) { return UsedOrFree(s.engine.slots_used, s.engine.slots_total, i); }},
              {"invar_kv_used_bytes", kGauge, "KV and recurrent memory held by live requests.",
               [](const S& s) { return s.engine.kv_bytes_used; }},
              {"invar_kernel_scratch_bytes", kGauge,
               "Working memory that the backend holds between operations; grows to what the largest batch needed.",
               [](const S& s) { return s.kernel_scratch_bytes; }},
          }};
}

}  // namespace invar::server
