// Lossless speculation: drafts and what became of them.
#include <cmath>
#include <cstdint>

#include "server/metrics/parts.h"

namespace invar::server {
namespace {

constexpr std::string_view NameOfDrop(const engine::DropReason reason) {
  switch (reason) {
    case engine::DropReason::kWrong:
      return "wrong";
    case engine::DropReason::kEnded:
      return "ended";
    case engine::DropReason::kReaderBehind:
      return "reader_behind";
    case engine::DropReason::kNoRoom:
      return "no_room";
    case engine::DropReason::kLeft:
      return "left";
  }
  return {};
}
static_assert(NamesAll<engine::DropReason>(engine::kDropReasons, NameOfDrop));

// Counted by the engine, round by round.
prometheus::ClientMetric AcceptedLengths(const MetricsSnapshot& s) {
  const engine::SpeculationStats& stats = s.engine.speculation;
  prometheus::ClientMetric metric;
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

}  // namespace

MetricsPart SpeculationMetrics() {
  using S = MetricsSnapshot;
  return {.title = "Speculation",
          .rows =
              {
                  {MetricName{"invar_speculation_rounds_total", "vllm:spec_decode_num_drafts_total"}, kCounter,
                   "Drafts of LOSSLESS requests that were verified.",
                   [](const S& s) { return s.engine.speculation.rounds; }},
                  {MetricName{"invar_speculation_drafted_tokens_total", "vllm:spec_decode_num_draft_tokens_total"},
                   kCounter, "Tokens of these drafts.", [](const S& s) { return s.engine.speculation.drafted_tokens; }},
                  {MetricName{"invar_speculation_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"},
                   kCounter, "Of these, tokens that were right: each saved a step of its request.",
                   [](const S& s) { return s.engine.speculation.accepted_tokens; }},
                  {"invar_speculation_dropped_tokens_total",
                   kCounter,
                   {AxisOf<engine::DropReason>("reason", engine::kDropReasons, NameOfDrop)},
                   "Drafted tokens that saved no step: one at or before them was wrong, the output or its reader's "
                   "pace ended before them (ended, reader_behind), or they were not verified, for want of a row, page "
                   "or log (no_room) or because their request was preempted or ended first (left).",
                   [](const S& s, const size_t i) { return s.engine.speculation.dropped_tokens[i]; }},
                  {"invar_speculation_plain_steps_total",
                   kCounter,
                   {AxisOf<engine::FallbackReason>(
                       "reason", engine::kFallbackReasons,
                       [](const engine::FallbackReason reason) { return engine::NameOf(reason); })},
                   "Steps that LOSSLESS requests decoded without a draft: it would not have paid, the drafter had no "
                   "guess (nothing_drafted), no row, page or log was left (no_room), or no memory for the view it "
                   "drafts on (no_draft_memory).",
                   [](const S& s, const size_t i) { return s.engine.speculation.fallbacks[i]; }},
                  {"invar_speculation_prepare_seconds_total", kCounter,
                   "Time that compressed views which drafts are made on took to be made and kept up.",
                   [](const S& s) { return ToSeconds(s.engine.speculation.prepare_ns); }},
                  {"invar_speculation_drafter_bytes", kGauge,
                   "Memory that these views and drafts hold, of engine.speculation.draft_memory.",
                   [](const S& s) { return s.engine.speculation.drafter_bytes; }},
              },
          .distributions = {
              {{"invar_speculation_accepted_per_round"},
               "Tokens accepted a verified draft.",
               {engine::kAcceptedBounds.begin(), engine::kAcceptedBounds.end()},
               AcceptedLengths},
          }};
}

}  // namespace invar::server
