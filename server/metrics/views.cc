// Approximate answers: compressed views that they are computed on.
#include "server/metrics/parts.h"

namespace invar::server {

MetricsPart ViewMetrics() {
  using S = MetricsSnapshot;
  return {
      .title = "Compressed views",
      .rows = {
          {"invar_views_serving", kGauge, "APPROXIMATE requests that decode on compressed KV now.",
           [](const S& s) { return s.engine.views.serving; }},
          {"invar_view_body_bytes", kGauge,
           "Compressed KV that they hold, without the pages of their latest tokens; part of invar_kv_used_bytes.",
           [](const S& s) { return s.engine.views.body_bytes; }},
          {"invar_views_made_total", kCounter,
           "Times compressed KV took the place of full KV, again after preemption included.",
           [](const S& s) { return s.engine.views.made; }},
          {"invar_view_upkeeps_total", kCounter, "Times new tokens were settled into compressed KV.",
           [](const S& s) { return s.engine.views.upkeeps; }},
          {"invar_view_seconds_total", kCounter, "Time of the engine that making compressed KV and keeping it up took.",
           [](const S& s) { return ToSeconds(s.engine.views.upkeep_ns); }},
          {"invar_approximate_tokens_total", kCounter,
           "Tokens that were computed on compressed KV; part of invar_generated_tokens_total.",
           [](const S& s) { return s.engine.views.tokens; }},
      }};
}

}  // namespace invar::server
