// The prefix cache: what was found, what is kept, and where checkpoints are placed.
#include "cache/tree_report.h"
#include "server/metrics/parts.h"

namespace invar::server {

MetricsPart CacheMetrics() {
  using S = MetricsSnapshot;
  const Axis order{.label = "order", .values = {"least-recently-used", "node-demand"}, .now = [](const S& s) {
                     const auto& orders = s.engine.cache.eviction_orders;
                     return std::vector<std::string_view>(orders.begin(), orders.end());
                   }};
  return {
      .title = "Prefix cache",
      .rows = {
          {"invar_prefix_lookups_total", kCounter,
           "Admissions that looked for a cached prefix, those after a preemption included.",
           [](const S& s) { return s.engine.cache.queries; }},
          {MetricName{"invar_prefix_lookup_tokens_total", "vllm:prefix_cache_queries_total"}, kCounter,
           "Tokens a cached prefix was looked for of.", [](const S& s) { return s.engine.cache.queried_tokens; }},
          {"invar_prefix_attention_hit_tokens_total", kCounter, "Of these, tokens whose attention KV was there.",
           [](const S& s) { return s.engine.cache.kv_match_tokens; }},
          {MetricName{"invar_prefix_resume_tokens_total", "vllm:prefix_cache_hits_total"}, kCounter,
           "Of these, tokens that were not run again: those before the checkpoint resumed from.",
           [](const S& s) { return s.engine.cache.state_match_tokens; }},
          {"invar_prefix_recomputed_tokens_total", kCounter,
           "Tokens run again only to rebuild recurrent state, their KV being there.",
           [](const S& s) { return s.engine.cache.recomputed_tokens; }},
          {"invar_checkpoints_made_total",
           kCounter,
           {AxisOf<cache::CheckpointKind>("kind", cache::kCheckpointKinds, cache::CheckpointKindName)},
           "Checkpoints of recurrent state put into the cache, by why they lie where they lie.",
           [](const S& s, const size_t i) { return s.engine.cache.checkpoints_made[i]; }},
          {"invar_checkpoints_skipped_total", kCounter, "Checkpoints wanted for which no memory was to be had.",
           [](const S& s) { return s.engine.cache.checkpoints_skipped; }},
          {"invar_checkpoint_evictions_total", kCounter, "Checkpoints given up for other memory.",
           [](const S& s) { return s.engine.cache.checkpoints_evicted; }},
          {"invar_page_evictions_total", kCounter, "Cached pages of attention KV given up for other memory.",
           [](const S& s) { return s.engine.cache.pages_evicted; }},
          {"invar_cache_nodes", kGauge, "Nodes of the prefix tree.", [](const S& s) { return s.engine.cache.nodes; }},
          {"invar_checkpoints", kGauge, "Checkpoints in the cache.",
           [](const S& s) { return s.engine.cache.checkpoints; }},
          {"invar_prefix_reuse_possible", kGauge,
           "1 where requests can reuse prefixes; 0 where the configuration rules that out, and the log says why.",
           [](const S& s) { return s.engine.prefix_reuse_possible; }},
          {"invar_cache_budget_bytes", kGauge,
           "Memory for live requests and everything cached: engine.kv_budget, less what holds no whole block.",
           [](const S& s) { return s.engine.cache.budget_bytes; }},
          {"invar_cached_bytes", kGauge,
           "Memory that only the cache holds; it is given up where live requests need it.",
           [](const S& s) { return s.engine.cache.cached_bytes; }},
          {"invar_checkpoint_price_tokens", kGauge,
           "Tokens a checkpoint must be expected to save to be worth its memory, by what was evicted of late; 0: no "
           "pressure.",
           [](const S& s) { return s.engine.cache.checkpoint_price_tokens; }},
          {"invar_plans_total", kCounter, "Prompts for which the placement of checkpoints was planned.",
           [](const S& s) { return s.engine.cache.plans; }},
          {"invar_plan_seconds_total", kCounter,
           "Time of the engine thread that planning took, what it learned from requests included; over "
           "invar_plans_total it is the cost of a plan.",
           [](const S& s) { return ToSeconds(s.engine.cache.plan_ns); }},
          {"invar_plan_classes", kGauge, "Classes of prefixes that the planner knows something of.",
           [](const S& s) { return s.engine.cache.classes; }},
          {"invar_plan_renewals_total", kCounter, "Times what a class of prefixes taught was summed up anew.",
           [](const S& s) { return s.engine.cache.priors_renewed; }},
          {"invar_eviction_order",
           kGauge,
           {order},
           "1 for the eviction order that is followed, 0 for the others.",
           [](const S& s, const size_t i) {
             return s.engine.cache.eviction_orders[i] == s.engine.cache.eviction_order;
           }},
      }};
}

}  // namespace invar::server
