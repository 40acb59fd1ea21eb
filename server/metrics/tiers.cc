// Slow tiers of the prefix cache: what was read and written for it, and how each of them does.
#include "server/metrics/parts.h"

namespace invar::server {
namespace {

std::vector<std::string_view> TiersOf(const MetricsSnapshot& s) {
  std::vector<std::string_view> names;
  for (const cache::TierReport& tier : s.engine.cache.tiers) names.push_back(tier.name);
  return names;
}

const cache::TierStats& TierOf(const MetricsSnapshot& s, const size_t tier) { return s.engine.cache.tiers[tier].stats; }

}  // namespace

MetricsPart TierMetrics() {
  using S = MetricsSnapshot;
  // Each tier that is configured.
  const Axis tier{.label = "tier", .values = {"ram", "disk", "remote"}, .now = TiersOf};
  const Axis miss_reason = AxisOf<cache::TierMiss>("reason", cache::kTierMissKinds, cache::TierMissName);
  return {
      .title = "Tiers of the prefix cache",
      .rows = {
          {"invar_tier_loads_total", kCounter,
           "Reads of a prefix, or of a part of a long one, from a slower tier that were begun for a request.",
           [](const S& s) { return s.engine.cache.tier_loads.begun; }},
          {"invar_tier_loads_failed_total", kCounter,
           "Of these, those that brought nothing: late, gone or damaged; the tokens were run.",
           [](const S& s) { return s.engine.cache.tier_loads.failed; }},
          {"invar_tier_loads_too_dear_total", kCounter,
           "Reads not begun because running the tokens was expected to be faster.",
           [](const S& s) { return s.engine.cache.tier_loads.too_dear; }},
          {"invar_tier_loads_paused_total", kCounter,
           "Reads not begun, or of less, because a tier that has the records does not answer and is left alone.",
           [](const S& s) { return s.engine.cache.tier_loads.paused; }},
          {"invar_tier_loads_refused_total", kCounter,
           "Reads not begun because not even the shortest useful part fits cache.tiers.queue_bytes_max beside others.",
           [](const S& s) { return s.engine.cache.tier_loads.refused; }},
          {"invar_tier_pages_written_total", kCounter, "Pages of KV given to slower tiers, each tier counted.",
           [](const S& s) { return s.engine.cache.tier_writes.pages; }},
          {"invar_tier_checkpoints_written_total", kCounter, "Checkpoints given to slower tiers, each tier counted.",
           [](const S& s) { return s.engine.cache.tier_writes.states; }},
          {"invar_tier_writes_refused_total", kCounter,
           "Pages and checkpoints that tiers should have kept and could not be given: no room for the copy or in the "
           "queue, or the tier was left alone.",
           [](const S& s) { return s.engine.cache.tier_writes.refused; }},
          {"invar_tier_loaded_tokens_total", kCounter, "Tokens that tiers spared from being run.",
           [](const S& s) { return s.engine.cache.tier_loads.tokens; }},
          {"invar_tier_records",
           kGauge,
           {tier},
           "Records of a tier: pages and checkpoints; -1: shared with others, not known.",
           [](const S& s, const size_t i) { return TierOf(s, i).records; }},
          {"invar_tier_bytes",
           kGauge,
           {tier},
           "Bytes of a tier; -1: shared with others, not known.",
           [](const S& s, const size_t i) { return TierOf(s, i).bytes; }},
          {"invar_tier_budget_bytes",
           kGauge,
           {tier},
           "Most bytes of a tier; -1: shared with others, not known.",
           [](const S& s, const size_t i) { return TierOf(s, i).budget_bytes; }},
          {"invar_tier_evictions_total",
           kCounter,
           {tier},
           "Records a tier gave up because it was full.",
           [](const S& s, const size_t i) { return TierOf(s, i).evictions; }},
          {"invar_tier_damaged_total",
           kCounter,
           {tier},
           "Records whose size, checksum or MAC was wrong; each was dropped.",
           [](const S& s, const size_t i) { return TierOf(s, i).damaged; }},
          {"invar_tier_paused",
           kGauge,
           {tier},
           "1 while a tier that does not answer is left alone: its calls are misses at once.",
           [](const S& s, const size_t i) { return TierOf(s, i).paused; }},
          {"invar_tier_pauses_total",
           kCounter,
           {tier},
           "Times a tier was left alone because it did not answer.",
           [](const S& s, const size_t i) { return TierOf(s, i).pauses; }},
          {"invar_tier_in_flight",
           kGauge,
           {tier},
           "Calls a tier is working on or has queued.",
           [](const S& s, const size_t i) { return TierOf(s, i).in_flight; }},
          {"invar_tier_in_flight_bytes",
           kGauge,
           {tier},
           "Bytes of records on their way to and from a tier.",
           [](const S& s, const size_t i) { return TierOf(s, i).in_flight_bytes; }},
          {"invar_tier_hits_total",
           kCounter,
           {tier},
           "Records read from a tier.",
           [](const S& s, const size_t i) { return TierOf(s, i).hits; }},
          {"invar_tier_stored_total",
           kCounter,
           {tier},
           "Records a tier has taken.",
           [](const S& s, const size_t i) { return TierOf(s, i).stored; }},
          {"invar_tier_read_bytes_total",
           kCounter,
           {tier},
           "Payload read from a tier.",
           [](const S& s, const size_t i) { return TierOf(s, i).bytes_read; }},
          {"invar_tier_written_bytes_total",
           kCounter,
           {tier},
           "Payload written to a tier.",
           [](const S& s, const size_t i) { return TierOf(s, i).bytes_written; }},
          {"invar_tier_misses_total",
           kCounter,
           {tier, miss_reason},
           "Reads and look-ups that a tier failed, by reason.",
           [](const S& s, const size_t i, const size_t miss) { return TierOf(s, i).get_misses[miss]; }},
          {"invar_tier_store_failures_total",
           kCounter,
           {tier, miss_reason},
           "Records a tier could not take, by reason.",
           [](const S& s, const size_t i, const size_t miss) { return TierOf(s, i).put_misses[miss]; }},
      }};
}

}  // namespace invar::server
