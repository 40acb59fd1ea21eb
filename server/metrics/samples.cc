// Distributions over requests and tokens, fed by events. Bucket bounds hold those of vLLM, so that its dashboards find
// every `le`, with finer ones below for small models.
#include "server/metrics/parts.h"

namespace invar::server {
namespace {

// All but what it reads.
DistributionRow Describe(const Sample sample) {
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
  switch (sample) {
    case Sample::kFirstToken:
      return {{"invar_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
              "From the arrival of a call to its first token.",
              first_token};
    case Sample::kInterToken:
      return {{"invar_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
              "Between two tokens of one request, as they leave the engine.",
              per_token};
    case Sample::kTimePerToken:
      return {{"invar_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"},
              "Decode time over tokens after the first, once a finished request.",
              per_token};
    case Sample::kRequest:
      return {{"invar_request_seconds", "vllm:e2e_request_latency_seconds"},
              "From arrival to end, finished requests.",
              request};
    case Sample::kQueue:
      return {{"invar_queue_seconds", "vllm:request_queue_time_seconds"},
              "Wait before admission, finished requests.",
              request};
    case Sample::kPrefill:
      return {{"invar_prefill_seconds", "vllm:request_prefill_time_seconds"},
              "From admission to first token, finished requests.",
              request};
    case Sample::kDecode:
      return {{"invar_decode_seconds", "vllm:request_decode_time_seconds"},
              "From first token to end, finished requests.",
              request};
    case Sample::kPromptTokens:
      return {
          {"invar_request_prompt_tokens", "vllm:request_prompt_tokens"}, "Prompt tokens, finished requests.", tokens};
    case Sample::kGeneratedTokens:
      return {{"invar_request_generated_tokens", "vllm:request_generation_tokens"},
              "Generated tokens, finished requests.",
              tokens};
  }
  Check(false, "every sample is described");
  return {};
}

const std::vector<DistributionRow>& Rows() {
  static const std::vector<DistributionRow> rows = [] {
    std::vector<DistributionRow> rows;
    for (size_t i = 0; i < kSampleCount; ++i) {
      rows.push_back(Describe(static_cast<Sample>(i)));
      rows.back().read = [i](const MetricsSnapshot& s) { return s.events.samples[i]; };
    }
    return rows;
  }();
  return rows;
}

}  // namespace

std::span<const double> BoundsOf(const Sample sample) { return Rows()[static_cast<size_t>(sample)].bounds; }

MetricsPart SampleMetrics() { return {.title = "Distributions over requests and tokens", .distributions = Rows()}; }

}  // namespace invar::server
