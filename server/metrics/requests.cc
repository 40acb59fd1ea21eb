// Requests: what the engine has taken, and what became of it.
#include "server/metrics/parts.h"

namespace invar::server {

MetricsPart RequestMetrics() {
  using S = MetricsSnapshot;
  return {
      .title = "Requests",
      .rows = {
          {"invar_requests_submitted_total", kCounter, "Requests the engine has taken.",
           [](const S& s) { return s.engine.submitted; }},
          {MetricName{"invar_requests_finished_total", "vllm:request_success_total"},
           kCounter,
           {{"reason", {"stop", "length"}}},
           "Requests that ended as asked: at a stop string, stop token or end of text, or at a length limit.",
           [](const S& s, const size_t i) { return i == 0 ? s.engine.finished_stop : s.engine.finished_length; }},
          {"invar_requests_cancelled_total", kCounter, "Requests whose caller went away.",
           [](const S& s) { return s.engine.cancelled; }},
          {"invar_requests_expired_total", kCounter, "Requests whose deadline passed.",
           [](const S& s) { return s.engine.expired; }},
          {"invar_requests_failed_total", kCounter, "Requests that ended with another error.",
           [](const S& s) { return s.engine.failed; }},
          {MetricName{"invar_requests_running", "vllm:num_requests_running"}, kGauge, "Requests that hold KV memory.",
           [](const S& s) { return s.engine.running; }},
          {MetricName{"invar_requests_waiting", "vllm:num_requests_waiting"}, kGauge, "Requests in the queue.",
           [](const S& s) { return s.engine.waiting; }},
          {"invar_requests_paused", kGauge, "Requests whose reader lags behind its buffer.",
           [](const S& s) { return s.engine.paused; }},
          {MetricName{"invar_prompt_tokens_total", "vllm:prompt_tokens_total"}, kCounter,
           "Prompt tokens of admitted requests.", [](const S& s) { return s.engine.prompt_tokens; }},
          {"invar_prefill_tokens_total", kCounter,
           "Prompt rows run through the model, those run again after preemption included.",
           [](const S& s) { return s.engine.prefill_tokens; }},
          {MetricName{"invar_generated_tokens_total", "vllm:generation_tokens_total"}, kCounter, "Tokens generated.",
           [](const S& s) { return s.engine.generated_tokens; }},
          {"invar_first_tokens_total", kCounter, "Requests that produced a token.",
           [](const S& s) { return s.engine.first_tokens; }},
          {MetricName{"invar_preemptions_total", "vllm:num_preemptions_total"}, kCounter,
           "Times a running request gave its memory up, to be computed again.",
           [](const S& s) { return s.engine.preemptions; }},
          {"invar_steps_total", kCounter, "Forward passes of the engine.", [](const S& s) { return s.engine.steps; }},
          {"invar_step_tokens", kGauge, "Rows of the last forward pass.",
           [](const S& s) { return s.engine.last_step_tokens; }},
      }};
}

}  // namespace invar::server
