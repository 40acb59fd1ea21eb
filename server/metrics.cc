// The tables. A row of kScalars gives a metric, where it comes from and the vllm:* name that dashboards and autoscalers
// read it by; a row of HistogramRows the same for distributions. Bucket bounds hold those of vLLM, so that its
// dashboards find every `le`, with finer ones below for small models.
#include "server/metrics.h"

#include <fmt/format.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "server/version.h"

namespace invar::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

struct Label {
  const char* name = nullptr;
  const char* value = nullptr;
};

struct Scalar {
  const char* name;
  MetricType type;
  Label label;        // One, or none.
  const char* alias;  // vllm:* name, or null.
  const char* help;
  double (*read)(const MetricsSnapshot&);
};

double Share(const int64_t part, const int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// Of the pool that is nearer to its end: routers that see only one would overload hybrids.
double KvShare(const MetricsSnapshot& s) {
  return std::max(Share(s.engine.pages_used, s.engine.pages_total), Share(s.engine.slots_used, s.engine.slots_total));
}

double Made(const MetricsSnapshot& s, const cache::CheckpointKind kind) {
  return static_cast<double>(s.engine.cache.checkpoints_made[static_cast<size_t>(kind)]);
}

double Dropped(const MetricsSnapshot& s, const engine::DropReason reason) {
  return static_cast<double>(s.engine.speculation.dropped_tokens[static_cast<size_t>(reason)]);
}
double PlainSteps(const MetricsSnapshot& s, const engine::FallbackReason reason) {
  return static_cast<double>(s.engine.speculation.fallbacks[static_cast<size_t>(reason)]);
}

constexpr MetricType kCounter = MetricType::Counter;
constexpr MetricType kGauge = MetricType::Gauge;

// Rows of one name stand together.
const Scalar kScalars[] = {
    {"invar_serving",
     kGauge,
     {},
     nullptr,
     "1 while requests are taken, 0 while loading or draining.",
     [](const MetricsSnapshot& s) { return s.serving ? 1.0 : 0.0; }},
    {"invar_draining",
     kGauge,
     {},
     nullptr,
     "1 after a stop signal.",
     [](const MetricsSnapshot& s) { return s.draining ? 1.0 : 0.0; }},
    {"invar_connections_open",
     kGauge,
     {},
     nullptr,
     "Connections of the gRPC port.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.connections_open); }},
    {"invar_open_request_bytes",
     kGauge,
     {},
     nullptr,
     "Memory of the requests, and of the answers of unary calls, of all open calls that were let in; "
     "limits.open_request_bytes_max bounds it.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.calls.bytes); }},
    {"invar_refused_request_bytes",
     kGauge,
     {},
     nullptr,
     "Memory of the requests of refused calls that have not taken their status yet; limits.refused_request_bytes_max "
     "bounds it.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.calls.refused_bytes); }},
    {"invar_refused_resets_total",
     kCounter,
     {},
     nullptr,
     "Refused calls that were ended without a status, since refused calls held limits.refused_request_bytes_max.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.calls.resets); }},
    {"invar_limit_refusals_total",
     kCounter,
     {"limit", "open_request_bytes_max"},
     nullptr,
     "Calls refused because all calls together were at this limit of the configuration's section limits.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.calls.bytes_refusals); }},
    {"invar_limit_refusals_total",
     kCounter,
     {"limit", "preparing_max"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.preparing.refusals); }},
    {"invar_calls_preparing",
     kGauge,
     {},
     nullptr,
     "Calls that wait to be tokenized or rendered; limits.preparing_max bounds them.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.preparing.waiting); }},
    {"invar_tenant_share_refusals_total",
     kCounter,
     {},
     nullptr,
     "Calls refused because their tenant held its limits.tenant_share_percent of open calls, of their bytes or of the "
     "calls that wait to be prepared.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.calls.share_refusals + s.preparing.share_refusals); }},

    // submitted = finished + cancelled + expired + failed + running + waiting, in every scrape.
    {"invar_requests_submitted_total",
     kCounter,
     {},
     nullptr,
     "Requests the engine has taken.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.submitted); }},
    {"invar_requests_finished_total",
     kCounter,
     {"reason", "stop"},
     "vllm:request_success_total",
     "Requests that ended as asked: at a stop string, stop token or end of text, or at a length limit.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.finished_stop); }},
    {"invar_requests_finished_total",
     kCounter,
     {"reason", "length"},
     "vllm:request_success_total",
     "",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.finished_length); }},
    {"invar_requests_cancelled_total",
     kCounter,
     {},
     nullptr,
     "Requests whose caller went away.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cancelled); }},
    {"invar_requests_expired_total",
     kCounter,
     {},
     nullptr,
     "Requests whose deadline passed.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.expired); }},
    {"invar_requests_failed_total",
     kCounter,
     {},
     nullptr,
     "Requests that ended with another error.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.failed); }},
    {"invar_requests_running",
     kGauge,
     {},
     "vllm:num_requests_running",
     "Requests that hold KV memory.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.running); }},
    {"invar_requests_waiting",
     kGauge,
     {},
     "vllm:num_requests_waiting",
     "Requests in the queue.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.waiting); }},
    {"invar_requests_paused",
     kGauge,
     {},
     nullptr,
     "Requests whose reader lags behind its buffer.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.paused); }},

    {"invar_prompt_tokens_total",
     kCounter,
     {},
     "vllm:prompt_tokens_total",
     "Prompt tokens of admitted requests.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.prompt_tokens); }},
    {"invar_prefill_tokens_total",
     kCounter,
     {},
     nullptr,
     "Prompt rows run through the model, those run again after preemption included.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.prefill_tokens); }},
    {"invar_generated_tokens_total",
     kCounter,
     {},
     "vllm:generation_tokens_total",
     "Tokens generated.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.generated_tokens); }},
    {"invar_first_tokens_total",
     kCounter,
     {},
     nullptr,
     "Requests that produced a token.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.first_tokens); }},
    {"invar_preemptions_total",
     kCounter,
     {},
     "vllm:num_preemptions_total",
     "Times a running request gave its memory up, to be computed again.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.preemptions); }},
    {"invar_steps_total",
     kCounter,
     {},
     nullptr,
     "Forward passes of the engine.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.steps); }},
    {"invar_step_tokens",
     kGauge,
     {},
     nullptr,
     "Rows of the last forward pass.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.last_step_tokens); }},

    {"invar_kv_usage_ratio",
     kGauge,
     {},
     "vllm:kv_cache_usage_perc",
     "Used share of attention pages or of recurrent slots, whichever is higher; 1 is full.",
     KvShare},
    {"invar_kv_pages",
     kGauge,
     {"state", "used"},
     nullptr,
     "Pages of attention KV.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.pages_used); }},
    {"invar_kv_pages",
     kGauge,
     {"state", "free"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.pages_total - s.engine.pages_used); }},
    {"invar_recurrent_slots",
     kGauge,
     {"state", "used"},
     nullptr,
     "Slots of recurrent state.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slots_used); }},
    {"invar_recurrent_slots",
     kGauge,
     {"state", "free"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slots_total - s.engine.slots_used); }},
    {"invar_kv_used_bytes",
     kGauge,
     {},
     nullptr,
     "KV and recurrent memory held by live requests.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.kv_bytes_used); }},

    // lookup = hit + computed over all admissions that may read the cache; hit <= attention hit.
    {"invar_prefix_lookups_total",
     kCounter,
     {},
     nullptr,
     "Admissions that looked for a cached prefix, those after a preemption included.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.queries); }},
    {"invar_prefix_lookup_tokens_total",
     kCounter,
     {},
     "vllm:prefix_cache_queries_total",
     "Tokens a cached prefix was looked for of.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.queried_tokens); }},
    {"invar_prefix_attention_hit_tokens_total",
     kCounter,
     {},
     nullptr,
     "Of these, tokens whose attention KV was there.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.kv_match_tokens); }},
    {"invar_prefix_resume_tokens_total",
     kCounter,
     {},
     "vllm:prefix_cache_hits_total",
     "Of these, tokens that were not run again: those before the checkpoint resumed from.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.state_match_tokens); }},
    {"invar_prefix_recomputed_tokens_total",
     kCounter,
     {},
     nullptr,
     "Tokens run again only to rebuild recurrent state, their KV being there.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.recomputed_tokens); }},
    {"invar_checkpoints_made_total",
     kCounter,
     {"kind", "prompt_end"},
     nullptr,
     "Checkpoints of recurrent state put into the cache, by why they lie where they lie.",
     [](const MetricsSnapshot& s) { return Made(s, cache::CheckpointKind::kPromptEnd); }},
    {"invar_checkpoints_made_total",
     kCounter,
     {"kind", "end"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return Made(s, cache::CheckpointKind::kEnd); }},
    {"invar_checkpoints_made_total",
     kCounter,
     {"kind", "branch"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return Made(s, cache::CheckpointKind::kBranch); }},
    {"invar_checkpoints_made_total",
     kCounter,
     {"kind", "hint"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return Made(s, cache::CheckpointKind::kHint); }},
    {"invar_checkpoints_made_total",
     kCounter,
     {"kind", "planned"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return Made(s, cache::CheckpointKind::kPlanned); }},
    {"invar_checkpoints_made_total",
     kCounter,
     {"kind", "preempted"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return Made(s, cache::CheckpointKind::kPreempted); }},
    {"invar_checkpoints_made_total",
     kCounter,
     {"kind", "brought"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return Made(s, cache::CheckpointKind::kBrought); }},
    {"invar_checkpoints_skipped_total",
     kCounter,
     {},
     nullptr,
     "Checkpoints wanted for which no memory was to be had.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.checkpoints_skipped); }},
    {"invar_checkpoint_evictions_total",
     kCounter,
     {},
     nullptr,
     "Checkpoints given up for other memory.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.checkpoints_evicted); }},
    {"invar_page_evictions_total",
     kCounter,
     {},
     nullptr,
     "Cached pages of attention KV given up for other memory.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.pages_evicted); }},
    {"invar_cache_nodes",
     kGauge,
     {},
     nullptr,
     "Nodes of the prefix tree.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.nodes); }},
    {"invar_checkpoints",
     kGauge,
     {},
     nullptr,
     "Checkpoints in the cache.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.checkpoints); }},
    {"invar_prefix_reuse_possible",
     kGauge,
     {},
     nullptr,
     "1 where requests can reuse prefixes; 0 where the configuration rules that out, and the log says why.",
     [](const MetricsSnapshot& s) { return s.engine.prefix_reuse_possible ? 1.0 : 0.0; }},
    {"invar_cache_budget_bytes",
     kGauge,
     {},
     nullptr,
     "Memory for live requests and everything cached: engine.kv_budget, less what holds no whole block.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.budget_bytes); }},
    {"invar_cached_bytes",
     kGauge,
     {},
     nullptr,
     "Memory that only the cache holds; it is given up where live requests need it.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.cached_bytes); }},
    {"invar_tier_loads_total",
     kCounter,
     {},
     nullptr,
     "Reads of a prefix, or of a part of a long one, from a slower tier that were begun for a request.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.tier_loads.begun); }},
    {"invar_tier_loads_failed_total",
     kCounter,
     {},
     nullptr,
     "Of these, those that brought nothing: late, gone or damaged; the tokens were run.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.tier_loads.failed); }},
    {"invar_tier_loads_too_dear_total",
     kCounter,
     {},
     nullptr,
     "Reads not begun because running the tokens was expected to be faster.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.tier_loads.too_dear); }},
    {"invar_tier_loads_paused_total",
     kCounter,
     {},
     nullptr,
     "Reads not begun, or of less, because a tier that has the records does not answer and is left alone.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.tier_loads.paused); }},
    {"invar_tier_loads_refused_total",
     kCounter,
     {},
     nullptr,
     "Reads not begun because not even the shortest useful part fits cache.tiers.queue_bytes_max beside others.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.tier_loads.refused); }},
    {"invar_tier_pages_written_total",
     kCounter,
     {},
     nullptr,
     "Pages of KV given to slower tiers, each tier counted.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.tier_writes.pages); }},
    {"invar_tier_checkpoints_written_total",
     kCounter,
     {},
     nullptr,
     "Checkpoints given to slower tiers, each tier counted.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.tier_writes.states); }},
    {"invar_tier_writes_refused_total",
     kCounter,
     {},
     nullptr,
     "Pages and checkpoints that tiers should have kept and could not be given: no room for the copy or in the queue, "
     "or the tier was left alone.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.tier_writes.refused); }},
    {"invar_tier_loaded_tokens_total",
     kCounter,
     {},
     nullptr,
     "Tokens that tiers spared from being run.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.tier_loads.tokens); }},
    {"invar_checkpoint_price_tokens",
     kGauge,
     {},
     nullptr,
     "Tokens a checkpoint must be expected to save to be worth its memory, by what was evicted of late; 0: no "
     "pressure.",
     [](const MetricsSnapshot& s) { return s.engine.cache.checkpoint_price_tokens; }},
    {"invar_plans_total",
     kCounter,
     {},
     nullptr,
     "Prompts for which the placement of checkpoints was planned.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.plans); }},
    {"invar_plan_seconds_total",
     kCounter,
     {},
     nullptr,
     "Time of the engine thread that planning took, what it learned from requests included; over invar_plans_total it "
     "is the cost of a plan.",
     [](const MetricsSnapshot& s) { return ToSeconds(s.engine.cache.plan_ns); }},
    {"invar_plan_classes",
     kGauge,
     {},
     nullptr,
     "Classes of prefixes that the planner knows something of.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.classes); }},
    {"invar_plan_renewals_total",
     kCounter,
     {},
     nullptr,
     "Times what a class of prefixes taught was summed up anew.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.cache.priors_renewed); }},
    {"invar_speculation_rounds_total",
     kCounter,
     {},
     "vllm:spec_decode_num_drafts_total",
     "Drafts of LOSSLESS requests that were verified.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.speculation.rounds); }},
    {"invar_speculation_drafted_tokens_total",
     kCounter,
     {},
     "vllm:spec_decode_num_draft_tokens_total",
     "Tokens of these drafts.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.speculation.drafted_tokens); }},
    {"invar_speculation_accepted_tokens_total",
     kCounter,
     {},
     "vllm:spec_decode_num_accepted_tokens_total",
     "Of these, tokens that were right: each saved a step of its request.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.speculation.accepted_tokens); }},
    {"invar_speculation_dropped_tokens_total",
     kCounter,
     {"reason", "wrong"},
     nullptr,
     "Drafted tokens that saved no step: one at or before them was wrong, the output or its reader's pace ended before "
     "them (ended, reader_behind), or they were not verified, for want of a row, page or log (no_room) or because "
     "their request was preempted or ended first (left).",
     [](const MetricsSnapshot& s) { return Dropped(s, engine::DropReason::kWrong); }},
    {"invar_speculation_dropped_tokens_total",
     kCounter,
     {"reason", "ended"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return Dropped(s, engine::DropReason::kEnded); }},
    {"invar_speculation_dropped_tokens_total",
     kCounter,
     {"reason", "reader_behind"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return Dropped(s, engine::DropReason::kReaderBehind); }},
    {"invar_speculation_dropped_tokens_total",
     kCounter,
     {"reason", "no_room"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return Dropped(s, engine::DropReason::kNoRoom); }},
    {"invar_speculation_dropped_tokens_total",
     kCounter,
     {"reason", "left"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return Dropped(s, engine::DropReason::kLeft); }},
    {"invar_speculation_plain_steps_total",
     kCounter,
     {"reason", "unprofitable"},
     nullptr,
     "Steps that LOSSLESS requests decoded without a draft: it would not have paid, the drafter had no guess "
     "(nothing_drafted), no row, page or log was left (no_room), or no memory for the view it drafts on "
     "(no_draft_memory).",
     [](const MetricsSnapshot& s) { return PlainSteps(s, engine::FallbackReason::kUnprofitable); }},
    {"invar_speculation_plain_steps_total",
     kCounter,
     {"reason", "nothing_drafted"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return PlainSteps(s, engine::FallbackReason::kNothingDrafted); }},
    {"invar_speculation_plain_steps_total",
     kCounter,
     {"reason", "no_room"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return PlainSteps(s, engine::FallbackReason::kNoRoom); }},
    {"invar_speculation_plain_steps_total",
     kCounter,
     {"reason", "no_draft_memory"},
     nullptr,
     "",
     [](const MetricsSnapshot& s) { return PlainSteps(s, engine::FallbackReason::kNoDraftMemory); }},
    {"invar_speculation_prepare_seconds_total",
     kCounter,
     {},
     nullptr,
     "Time that compressed views which drafts are made on took to be made and kept up.",
     [](const MetricsSnapshot& s) { return ToSeconds(s.engine.speculation.prepare_ns); }},
    {"invar_speculation_drafter_bytes",
     kGauge,
     {},
     nullptr,
     "Memory that these views and drafts hold, of engine.speculation.draft_memory.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.speculation.drafter_bytes); }},
    {"invar_slow_tier_requests",
     kGauge,
     {},
     nullptr,
     "Requests whose full KV lies in the slow tier (engine.speculation.slow_tier) now.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slow_tier.away); }},
    {"invar_slow_tier_used_bytes",
     kGauge,
     {},
     nullptr,
     "Bytes of the slow tier that they take.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slow_tier.used_bytes); }},
    {"invar_slow_tier_moved_out_total",
     kCounter,
     {},
     nullptr,
     "Times full KV of a request moved there.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slow_tier.moved_out); }},
    {"invar_slow_tier_brought_back_total",
     kCounter,
     {},
     nullptr,
     "Times it came back into engine.kv_budget as a whole.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slow_tier.brought_back); }},
    {"invar_slow_tier_written_bytes_total",
     kCounter,
     {},
     nullptr,
     "Full KV written there.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slow_tier.written_bytes); }},
    {"invar_slow_tier_streams_total",
     kCounter,
     {},
     nullptr,
     "Streams of a request's full KV into a forward that verifies.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slow_tier.streams); }},
    {"invar_slow_tier_streamed_bytes_total",
     kCounter,
     {},
     nullptr,
     "Bytes of these streams.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slow_tier.streamed_bytes); }},
    {"invar_slow_tier_read_seconds_total",
     kCounter,
     {},
     nullptr,
     "Time that reading them took, beside computing.",
     [](const MetricsSnapshot& s) { return ToSeconds(s.engine.slow_tier.read_ns); }},
    {"invar_slow_tier_stall_seconds_total",
     kCounter,
     {},
     nullptr,
     "Time that forwards waited for a layer.",
     [](const MetricsSnapshot& s) { return ToSeconds(s.engine.slow_tier.stall_ns); }},
    {"invar_slow_tier_failures_total",
     kCounter,
     {},
     nullptr,
     "Reads and writes of the slow tier that failed or gave other bytes than were written; what depended on them was "
     "computed again, with equal bits.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slow_tier.failures); }},
    {"invar_slow_tier_drafted_beside_streams_total",
     kCounter,
     {},
     nullptr,
     "Tokens drafted while a stream was on its way.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slow_tier.drafted_beside_streams); }},
    {"invar_slow_tier_rounds_pay",
     kGauge,
     {},
     nullptr,
     "1 while rounds over the slow tier are taken to pay; 0: requests that are there come back as there is room, and "
     "no more go.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.slow_tier.staggered); }},
    {"invar_slow_tier_gain_ratio",
     kGauge,
     {},
     nullptr,
     "Tokens a second expected of rounds over the slow tier, over those of plain decoding; 1 while nothing is "
     "measured.",
     [](const MetricsSnapshot& s) { return s.engine.slow_tier.gain; }},
    {"invar_views_serving",
     kGauge,
     {},
     nullptr,
     "APPROXIMATE requests that decode on compressed KV now.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.views.serving); }},
    {"invar_view_body_bytes",
     kGauge,
     {},
     nullptr,
     "Compressed KV that they hold, without the pages of their latest tokens; part of invar_kv_used_bytes.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.views.body_bytes); }},
    {"invar_views_made_total",
     kCounter,
     {},
     nullptr,
     "Times compressed KV took the place of full KV, again after preemption included.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.views.made); }},
    {"invar_view_upkeeps_total",
     kCounter,
     {},
     nullptr,
     "Times new tokens were settled into compressed KV.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.views.upkeeps); }},
    {"invar_view_seconds_total",
     kCounter,
     {},
     nullptr,
     "Time of the engine that making compressed KV and keeping it up took.",
     [](const MetricsSnapshot& s) { return ToSeconds(s.engine.views.upkeep_ns); }},
    {"invar_approximate_tokens_total",
     kCounter,
     {},
     nullptr,
     "Tokens that were computed on compressed KV; part of invar_generated_tokens_total.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.views.tokens); }},
    {"invar_kernel_scratch_bytes",
     kGauge,
     {},
     nullptr,
     "Working memory that the backend holds between operations; grows to what the largest batch needed.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.kernel_scratch_bytes); }},
};

struct HistogramRow {
  const char* name;
  const char* alias;
  const char* help;
  std::vector<double> bounds;
};

// In the order of Sample.
const std::array<HistogramRow, kSampleCount>& HistogramRows() {
  static const std::vector<double> first_token = {.0005, .001, .005, .01, .02, .04, .06, .08, .1,  .25, .5,  .75,
                                                  1,     2.5,  5,    7.5, 10,  20,  40,  80,  160, 640, 2560};
  static const std::vector<double> per_token = {.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05,
                                                .075,  .1,     .15,   .2,   .3,    .4,   .5,  .75,  1,
                                                2.5,   5,      7.5,   10,   20,    40,   80};
  static const std::vector<double> request = {.001, .0025, .005, .01, .025, .05, .1,  .2,   .3,  .5,
                                              .8,   1,     1.5,  2,   2.5,  5,   10,  15,   20,  30,
                                              40,   50,    60,   120, 240,  480, 960, 1920, 7680};
  static const std::vector<double> tokens = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                             1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
  static const std::array<HistogramRow, kSampleCount> rows = {{
      {"invar_time_to_first_token_seconds", "vllm:time_to_first_token_seconds",
       "From the arrival of a call to its first token.", first_token},
      {"invar_inter_token_latency_seconds", "vllm:inter_token_latency_seconds",
       "Between two tokens of one request, as they leave the engine.", per_token},
      {"invar_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds",
       "Decode time over tokens after the first, once a finished request.", per_token},
      {"invar_request_seconds", "vllm:e2e_request_latency_seconds", "From arrival to end, finished requests.", request},
      {"invar_queue_seconds", "vllm:request_queue_time_seconds", "Wait before admission, finished requests.", request},
      {"invar_prefill_seconds", "vllm:request_prefill_time_seconds",
       "From admission to first token, finished requests.", request},
      {"invar_decode_seconds", "vllm:request_decode_time_seconds", "From first token to end, finished requests.",
       request},
      {"invar_request_prompt_tokens", "vllm:request_prompt_tokens", "Prompt tokens, finished requests.", tokens},
      {"invar_request_generated_tokens", "vllm:request_generation_tokens", "Generated tokens, finished requests.",
       tokens},
  }};
  return rows;
}

constexpr const char* kRefusalNames[kRefusalCount] = {"total", "per_address", "files", "abuse"};

// Metrics that need code of their own, for the docs.
struct Described {
  const char* name;
  const char* type;
  std::string labels;  // As in the docs.
  std::string help;
};
constexpr char kCallsOpenHelp[] = "Calls that have not ended, let in or not. A drain waits for all of them.";
constexpr char kAcceptedName[] = "invar_speculation_accepted_per_round";
constexpr char kAcceptedHelp[] = "Tokens accepted a verified draft.";
std::vector<Described> Others() {
  return {
      {"invar_eviction_order", "gauge", "model, order (least-recently-used, node-demand)",
       "1 for the eviction order that is followed, 0 for the others."},
      {kAcceptedName, "histogram", "model",
       fmt::format("{} Buckets: {}", kAcceptedHelp, fmt::join(engine::kAcceptedBounds, ", "))},
      {"invar_calls_open", "gauge", fmt::format("model, rpc ({})", fmt::join(kRpcNames, ", ")), kCallsOpenHelp},
      {"invar_rpcs_total", "counter", fmt::format("rpc ({}), code", fmt::join(kRpcNames, ", ")),
       "Calls that ended, by rpc and the name of the gRPC code."},
      {"invar_connections_refused_total", "counter", fmt::format("reason ({})", fmt::join(kRefusalNames, ", ")),
       "Connections closed by a limit: total, per_address, files (open-file limit), abuse (too many cancelled calls)."},
      {"invar_build_info", "gauge", "version", "Always 1."},
      {"invar_model_info", "gauge", "model, architecture, fingerprint, numerics_id",
       "Always 1, once a model is loaded."},
      {"vllm:cache_config_info", "gauge", "model_name, engine, block_size, num_gpu_blocks", "Always 1 (alias set)."},
      {"process_resident_memory_bytes", "gauge", "", "Resident memory."},
      {"process_open_fds", "gauge", "", "Open file descriptors."},
      {"process_threads", "gauge", "", "Threads."},
      {"process_cpu_seconds_total", "counter", "", "User and system time."},
  };
}

// Of each slow tier, labelled by its name.
struct TierRow {
  const char* name;
  MetricType type;
  const char* help;
  int64_t cache::TierStats::*value;
};
constexpr TierRow kTierRows[] = {
    {"invar_tier_records", kGauge, "Records of a tier: pages and checkpoints; -1: shared with others, not known.",
     &cache::TierStats::records},
    {"invar_tier_bytes", kGauge, "Bytes of a tier; -1: shared with others, not known.", &cache::TierStats::bytes},
    {"invar_tier_budget_bytes", kGauge, "Most bytes of a tier; -1: shared with others, not known.",
     &cache::TierStats::budget_bytes},
    {"invar_tier_evictions_total", kCounter, "Records a tier gave up because it was full.",
     &cache::TierStats::evictions},
    {"invar_tier_damaged_total", kCounter, "Records whose size, checksum or MAC was wrong; each was dropped.",
     &cache::TierStats::damaged},
    {"invar_tier_paused", kGauge, "1 while a tier that does not answer is left alone: its calls are misses at once.",
     &cache::TierStats::paused},
    {"invar_tier_pauses_total", kCounter, "Times a tier was left alone because it did not answer.",
     &cache::TierStats::pauses},
    {"invar_tier_in_flight", kGauge, "Calls a tier is working on or has queued.", &cache::TierStats::in_flight},
    {"invar_tier_in_flight_bytes", kGauge, "Bytes of records on their way to and from a tier.",
     &cache::TierStats::in_flight_bytes},
    {"invar_tier_hits_total", kCounter, "Records read from a tier.", &cache::TierStats::hits},
    {"invar_tier_stored_total", kCounter, "Records a tier has taken.", &cache::TierStats::stored},
    {"invar_tier_read_bytes_total", kCounter, "Payload read from a tier.", &cache::TierStats::bytes_read},
    {"invar_tier_written_bytes_total", kCounter, "Payload written to a tier.", &cache::TierStats::bytes_written},
};

// Of each slow tier, also by reason (cache::TierMissName).
struct TierMissRow {
  const char* name;
  const char* help;
  std::array<int64_t, cache::kTierMissKinds> cache::TierStats::*value;
};
constexpr TierMissRow kTierMissRows[] = {
    {"invar_tier_misses_total", "Reads and look-ups that a tier failed, by reason.", &cache::TierStats::get_misses},
    {"invar_tier_store_failures_total", "Records a tier could not take, by reason.", &cache::TierStats::put_misses},
};

// Of prefixes between instances.
struct TransferRow {
  const char* name;
  MetricType type;
  const char* help;
  double (*read)(const MetricsSnapshot&);
};
constexpr TransferRow kTransferRows[] = {
    {"invar_transfer_begun_total", kCounter, "Prefixes this instance asked others for.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.transfer.begun); }},
    {"invar_transfer_landed_total", kCounter, "Of these, those that came and were taken up.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.transfer.landed); }},
    {"invar_transfer_cancelled_total", kCounter, "Of these, those whose request ended first.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.transfer.cancelled); }},
    {"invar_transfer_under_way", kGauge, "Of these, those that requests wait for.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.transfer.under_way); }},
    {"invar_transfer_tokens_total", kCounter, "Prompt tokens that were not run here because of them.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.transfer.tokens); }},
    {"invar_transfer_received_bytes_total", kCounter, "Payload of prefixes that came here, used or not.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.transfer.bytes); }},
    {"invar_transfer_wait_seconds_total", kCounter, "Time that requests waited for prefixes, those in vain included.",
     [](const MetricsSnapshot& s) { return ToSeconds(s.engine.transfer.wait_ns); }},
    {"invar_transfer_coded_landed_total", kCounter,
     "Of those that landed, those of other weights, in codes: answers on them are approximate.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.transfer.coded_landed); }},
    {"invar_transfer_coded_tokens_total", kCounter, "Prompt tokens that were not run here because of them.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.transfer.coded_tokens); }},
    {"invar_transfer_coded_bytes_total", kCounter, "Payload of them.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.engine.transfer.coded_bytes); }},
    {"invar_transfer_rebuild_seconds_total", kCounter, "Time of the engine that making prefixes of codes took.",
     [](const MetricsSnapshot& s) { return ToSeconds(s.engine.transfer.rebuild_ns); }},
    {"invar_transfer_asked_total", kCounter, "Prefixes that others asked this instance for.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.transfer.asked); }},
    {"invar_transfer_sent_total", kCounter, "Of these, those that their consumer confirmed.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.transfer.sent); }},
    {"invar_transfer_refused_total", kCounter,
     "Of these, those refused: another model or version, no right to it, no room, or not serving.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.transfer.refused); }},
    {"invar_transfer_failed_total", kCounter, "Of these, those that could not be computed.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.transfer.failed); }},
    {"invar_transfer_abandoned_total", kCounter, "Of these, those whose consumer gave up or went away.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.transfer.abandoned); }},
    {"invar_transfer_expired_total", kCounter,
     "Of these, those whose consumer was silent for transfer.lease: what was held for it is free again.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.transfer.expired); }},
    {"invar_transfer_sent_bytes_total", kCounter, "Payload of prefixes that went out.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.transfer.bytes); }},
    {"invar_transfer_codes_kept_bytes", kGauge, "Codes that went out and are kept, of transfer.codes_kept.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.transfer.codes_kept_bytes); }},
    {"invar_transfer_held_bytes", kGauge, "Copies of prefixes on their way out, of transfer.bytes_max.",
     [](const MetricsSnapshot& s) { return static_cast<double>(s.transfer.held_bytes); }},
};
constexpr char kFallbacksName[] = "invar_transfer_fallbacks_total";
constexpr char kFallbacksHelp[] =
    "Prefixes that did not come, and were run here, by reason (docs/TRANSFER.md); silent: the producer's lease ended; "
    "damaged: a checksum was wrong.";

std::string_view FaultName(const size_t fault) { return engine::NameOf(static_cast<engine::TransferFault>(fault)); }

class Page {
 public:
  // Adds a value to the family `name`, begun where the last added family has another name.
  void Add(const std::string& name, const MetricType type, const std::string& help, Labels labels, const double value) {
    MetricFamily& family = FamilyOf(name, type, help);
    ClientMetric metric;
    metric.label = std::move(labels);
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family.metric.push_back(std::move(metric));
  }

  void AddHistogram(const std::string& name, const std::string& help, Labels labels, ClientMetric metric) {
    metric.label = std::move(labels);
    FamilyOf(name, MetricType::Histogram, help).metric.push_back(std::move(metric));
  }

  std::string Text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families_);
    return out.str();
  }

 private:
  MetricFamily& FamilyOf(const std::string& name, const MetricType type, const std::string& help) {
    if (families_.empty() || families_.back().name != name) {
      MetricFamily family;
      family.name = name;
      family.help = help;
      family.type = type;
      families_.push_back(std::move(family));
    }
    return families_.back();
  }

  std::vector<MetricFamily> families_;
};

// Counted by the engine, round by round.
ClientMetric AcceptedLengths(const engine::SpeculationStats& stats) {
  ClientMetric metric;
  uint64_t rounds = 0;
  for (size_t i = 0; i < engine::kAcceptedBounds.size(); ++i) {
    rounds += static_cast<uint64_t>(stats.accepted_lengths[i]);
    metric.histogram.bucket.push_back(
        {.cumulative_count = rounds, .upper_bound = static_cast<double>(engine::kAcceptedBounds[i])});
  }
  metric.histogram.bucket.push_back({.cumulative_count = static_cast<uint64_t>(stats.rounds), .upper_bound = HUGE_VAL});
  metric.histogram.sample_count = static_cast<uint64_t>(stats.rounds);
  metric.histogram.sample_sum = static_cast<double>(stats.accepted_tokens);
  return metric;
}

Labels AliasLabels(const MetricsSnapshot& snapshot) { return {{"model_name", snapshot.model}, {"engine", "0"}}; }

void AddScalars(const MetricsSnapshot& snapshot, const bool aliases, Page& page) {
  for (const Scalar& row : kScalars) {
    if (aliases && row.alias == nullptr) continue;
    Labels labels = aliases ? AliasLabels(snapshot) : Labels{{"model", snapshot.model}};
    const bool is_reason = row.label.name != nullptr && aliases;
    if (row.label.name != nullptr) labels.push_back({is_reason ? "finished_reason" : row.label.name, row.label.value});
    page.Add(aliases ? row.alias : row.name, row.type, row.help, std::move(labels), row.read(snapshot));
  }
}

void AddAliasExtras(const MetricsSnapshot& snapshot, Page& page) {
  Labels labels = AliasLabels(snapshot);
  labels.push_back({"block_size", std::to_string(kernels::kPageTokens)});
  labels.push_back({"num_gpu_blocks", std::to_string(snapshot.engine.pages_total)});
  page.Add("vllm:cache_config_info", kGauge, "Shape of the KV memory.", std::move(labels), 1.0);
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t EntriesOf(const char* folder) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  return error ? 0 : std::distance(begin(entries), end(entries));
}

void AddProcess(Page& page) {
  page.Add("process_resident_memory_bytes", kGauge, "Resident memory.", {}, static_cast<double>(ResidentBytes()));
  page.Add("process_open_fds", kGauge, "Open file descriptors.", {}, static_cast<double>(EntriesOf("/proc/self/fd")));
  page.Add("process_threads", kGauge, "Threads.", {}, static_cast<double>(EntriesOf("/proc/self/task")));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * t.tv_usec; };
  page.Add("process_cpu_seconds_total", kCounter, "User and system time.", {},
           seconds(usage.ru_utime) + seconds(usage.ru_stime));
}

void AddInfo(const MetricsSnapshot& snapshot, Page& page) {
  page.Add("invar_build_info", kGauge, "Always 1; the version is a label.", {{"version", kVersion}}, 1.0);
  if (!snapshot.spec) return;
  page.Add("invar_model_info", kGauge, "Always 1; what is served stands in the labels.",
           {{"model", snapshot.model},
            {"architecture", snapshot.spec->architecture},
            {"fingerprint", snapshot.spec->fingerprint},
            {"numerics_id", snapshot.spec->numerics_id}},
           1.0);
}

}  // namespace

Metrics::Metrics(const bool vllm_aliases) : vllm_aliases_(vllm_aliases) {
  for (int i = 0; i < kSampleCount; ++i) {
    histograms_[i] = std::make_unique<prometheus::Histogram>(HistogramRows()[i].bounds);
  }
}

void Metrics::Observe(const Sample sample, const double value) {
  histograms_[static_cast<size_t>(sample)]->Observe(std::max(value, 0.0));
}

void Metrics::CountCall(const Rpc rpc, const StatusCode code) {
  ++calls_[static_cast<size_t>(rpc)][static_cast<size_t>(code)];
}

void Metrics::CountRefusal(const Refusal refusal) { ++refusals_[static_cast<size_t>(refusal)]; }

void AddTiers(const MetricsSnapshot& snapshot, Page& page) {
  const std::vector<cache::TierReport>& tiers = snapshot.engine.cache.tiers;
  for (const TierRow& row : kTierRows) {
    for (const cache::TierReport& tier : tiers) {
      page.Add(row.name, row.type, row.help, {{"model", snapshot.model}, {"tier", std::string(tier.name)}},
               static_cast<double>(tier.stats.*row.value));
    }
  }
  for (const TierMissRow& row : kTierMissRows) {
    for (const cache::TierReport& tier : tiers) {
      for (int i = 0; i < cache::kTierMissKinds; ++i) {
        page.Add(row.name, kCounter, row.help,
                 {{"model", snapshot.model},
                  {"tier", std::string(tier.name)},
                  {"reason", std::string(cache::TierMissName(static_cast<cache::TierMiss>(i)))}},
                 static_cast<double>((tier.stats.*row.value)[static_cast<size_t>(i)]));
      }
    }
  }
}

void AddTransfers(const MetricsSnapshot& snapshot, Page& page) {
  for (const TransferRow& row : kTransferRows) {
    page.Add(row.name, row.type, row.help, {{"model", snapshot.model}}, row.read(snapshot));
  }
  for (size_t fault = 0; fault < engine::kTransferFaults; ++fault) {
    page.Add(kFallbacksName, kCounter, kFallbacksHelp,
             {{"model", snapshot.model}, {"reason", std::string(FaultName(fault))}},
             static_cast<double>(snapshot.engine.transfer.faults[fault]));
  }
}

std::string Metrics::Text(const MetricsSnapshot& snapshot) const {
  Page page;
  AddInfo(snapshot, page);
  AddScalars(snapshot, /*aliases=*/false, page);
  for (size_t rpc = 0; rpc < kRpcCount; ++rpc) {
    page.Add("invar_calls_open", kGauge, kCallsOpenHelp,
             {{"model", snapshot.model}, {"rpc", std::string(kRpcNames[rpc])}},
             static_cast<double>(snapshot.calls.calls.of[rpc]));
  }
  for (size_t rpc = 0; rpc < kRpcCount; ++rpc) {
    for (int code = 0; code < kCodeCount; ++code) {
      const int64_t count = calls_[rpc][code];
      if (count == 0 && code != 0) continue;
      page.Add(
          "invar_rpcs_total", kCounter, "Calls that ended, by rpc and gRPC code.",
          {{"rpc", std::string(kRpcNames[rpc])}, {"code", std::string(StatusCodeName(static_cast<StatusCode>(code)))}},
          static_cast<double>(count));
    }
  }
  for (const std::string_view order : snapshot.engine.cache.eviction_orders) {
    page.Add("invar_eviction_order", kGauge, "1 for the eviction order that is followed, 0 for the others.",
             {{"model", snapshot.model}, {"order", std::string(order)}},
             order == snapshot.engine.cache.eviction_order ? 1.0 : 0.0);
  }
  AddTiers(snapshot, page);
  AddTransfers(snapshot, page);
  for (int i = 0; i < kRefusalCount; ++i) {
    page.Add("invar_connections_refused_total", kCounter, "Connections closed by a limit.",
             {{"reason", kRefusalNames[i]}}, static_cast<double>(refusals_[i]));
  }
  for (int i = 0; i < kSampleCount; ++i) {
    const HistogramRow& row = HistogramRows()[i];
    page.AddHistogram(row.name, row.help, {{"model", snapshot.model}}, histograms_[i]->Collect());
  }
  page.AddHistogram(kAcceptedName, kAcceptedHelp, {{"model", snapshot.model}},
                    AcceptedLengths(snapshot.engine.speculation));
  if (vllm_aliases_) {
    AddScalars(snapshot, /*aliases=*/true, page);
    AddAliasExtras(snapshot, page);
    for (int i = 0; i < kSampleCount; ++i) {
      const HistogramRow& row = HistogramRows()[i];
      page.AddHistogram(row.alias, row.help, AliasLabels(snapshot), histograms_[i]->Collect());
    }
  }
  AddProcess(page);
  return page.Text();
}

namespace {

constexpr char kTierLabels[] = "model, tier (ram, disk, remote)";

std::string TierMissNames() {
  std::vector<std::string_view> names;
  for (int i = 0; i < cache::kTierMissKinds; ++i) names.push_back(cache::TierMissName(static_cast<cache::TierMiss>(i)));
  return fmt::format("{}", fmt::join(names, ", "));
}

// "model", and the label in which rows of `row`'s name differ, with its values.
std::string LabelsOf(const Scalar& row) {
  if (row.label.name == nullptr) return "model";
  std::vector<std::string_view> values;
  for (const Scalar& other : kScalars) {
    if (std::string_view(other.name) == row.name) values.push_back(other.label.value);
  }
  return fmt::format("model, {} ({})", row.label.name, fmt::join(values, ", "));
}

}  // namespace

std::string PrintMetricsDocs() {
  std::string out =
      "# Metrics\n\n"
      "Generated by `invar config --metrics-docs`; do not edit. The tables they come from are in "
      "`server/metrics.cc`.\n\n"
      "`GET /metrics` on the ops port gives Prometheus text. Units are base units and part of the name. Labels are "
      "those named below, with all values they take where these are few; never a tenant or a request, so the number of "
      "series is constant. With `metrics.vllm_aliases` the same numbers also appear under the vllm:* names, labelled "
      "`model_name` and `engine` in the place of `model`, and `finished_reason` in that of any other label.\n\n"
      "In every scrape `submitted = finished + cancelled + expired + failed + running + waiting`.\n\n"
      "| name | type | labels | alias | meaning |\n|---|---|---|---|---|\n";
  const char* last = "";
  for (const Scalar& row : kScalars) {
    if (std::string_view(row.name) == last) continue;
    last = row.name;
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.name, row.type == kCounter ? "counter" : "gauge",
                       LabelsOf(row), row.alias != nullptr ? fmt::format("`{}`", row.alias) : "", row.help);
  }
  for (const HistogramRow& row : HistogramRows()) {
    out += fmt::format("| `{}` | histogram | model | `{}` | {} Buckets: {} |\n", row.name, row.alias, row.help,
                       fmt::join(row.bounds, ", "));
  }
  for (const TierRow& row : kTierRows) {
    out += fmt::format("| `{}` | {} | {} | | {} |\n", row.name, row.type == kCounter ? "counter" : "gauge", kTierLabels,
                       row.help);
  }
  for (const TierMissRow& row : kTierMissRows) {
    out +=
        fmt::format("| `{}` | counter | {}, reason ({}) | | {} |\n", row.name, kTierLabels, TierMissNames(), row.help);
  }
  for (const TransferRow& row : kTransferRows) {
    out +=
        fmt::format("| `{}` | {} | model | | {} |\n", row.name, row.type == kCounter ? "counter" : "gauge", row.help);
  }
  std::vector<std::string_view> faults;
  for (size_t fault = 0; fault < engine::kTransferFaults; ++fault) faults.push_back(FaultName(fault));
  out += fmt::format("| `{}` | counter | model, reason ({}) | | {} |\n", kFallbacksName, fmt::join(faults, ", "),
                     kFallbacksHelp);
  for (const Described& row : Others()) {
    out += fmt::format("| `{}` | {} | {} | | {} |\n", row.name, row.type, row.labels, row.help);
  }
  return out;
}

}  // namespace invar::server
