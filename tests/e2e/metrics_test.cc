// The numbers add up: in every scrape while load runs, and against what clients measured.
#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "tests/e2e/daemon_fixture.h"

namespace invar::e2e {
namespace {

void ExpectIdentities(const std::string& text) {
  const double submitted = MetricSum(text, "invar_requests_submitted_total");
  const double ended = MetricSum(text, "invar_requests_finished_total") +
                       MetricSum(text, "invar_requests_cancelled_total") +
                       MetricSum(text, "invar_requests_expired_total") + MetricSum(text, "invar_requests_failed_total");
  const double live = MetricSum(text, "invar_requests_running") + MetricSum(text, "invar_requests_waiting");
  EXPECT_EQ(submitted, ended + live);
  for (const char* gauge : {"invar_requests_running", "invar_requests_waiting", "invar_requests_paused",
                            "invar_kv_usage_ratio", "invar_kv_pages", "invar_recurrent_slots", "invar_calls_open"}) {
    EXPECT_GE(MetricSum(text, gauge), 0.0) << gauge;
  }
}

TEST(Metrics, HoldTheirIdentitiesInEveryScrapeUnderMixedLoad) {
  RunningDaemon daemon(TinyConfig());
  std::atomic<int> active = 4;
  std::atomic<int64_t> prompt_tokens = 0, generated_tokens = 0, finished = 0;
  std::vector<std::thread> clients;
  for (int t = 0; t < 4; ++t) {
    clients.emplace_back([&, t] {
      std::mt19937 random(t);
      const auto stub = daemon.NewStub();
      for (int i = 0; i < 30; ++i) {
        v1::GenerateRequest request =
            TokensRequest(std::vector<int32_t>(1 + random() % 200, 3), static_cast<int32_t>(1 + random() % 40));
        if (i % 7 == 3) request.mutable_sampling()->set_top_p(5.0F);
        const auto timeout = i % 5 == 4 ? std::chrono::milliseconds(1) : std::chrono::milliseconds(60'000);
        const Outcome outcome = Collect(*stub, request, timeout);
        if (!outcome.status.ok()) continue;
        ++finished;
        prompt_tokens += outcome.finished.usage().prompt_tokens();
        generated_tokens += outcome.finished.usage().completion_tokens();
      }
      --active;
    });
  }
  int scrapes = 0;
  while (active > 0) {
    ExpectIdentities(daemon.daemon().MetricsText());
    ++scrapes;
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(scrapes, 3);
  ASSERT_TRUE(daemon.BecomesIdle());
  const std::string text = daemon.daemon().MetricsText();
  ExpectIdentities(text);
  EXPECT_GE(MetricSum(text, "invar_requests_finished_total"), finished);
  EXPECT_GE(MetricSum(text, "invar_generated_tokens_total"), generated_tokens);
  EXPECT_EQ(MetricSum(text, "invar_first_tokens_total"), MetricSum(text, "invar_time_to_first_token_seconds_count"));
  EXPECT_EQ(MetricSum(text, "invar_request_seconds_count"), MetricSum(text, "invar_requests_finished_total"));
  EXPECT_EQ(MetricSum(text, "invar_request_prompt_tokens_count"), MetricSum(text, "invar_requests_finished_total"));
  EXPECT_EQ(MetricSum(text, "invar_generated_tokens_total"),
            MetricSum(text, "invar_first_tokens_total") + MetricSum(text, "invar_inter_token_latency_seconds_count"));
  EXPECT_GT(MetricSum(text, "invar_rpcs_total", "INVALID_ARGUMENT"), 0);
  EXPECT_EQ(MetricSum(text, "vllm:num_requests_running"), 0);
  EXPECT_EQ(MetricSum(text, "vllm:prompt_tokens_total"), MetricSum(text, "invar_prompt_tokens_total"));
}

TEST(Metrics, SumOverResponsesEqualsTheCounters) {
  RunningDaemon daemon(TinyConfig());
  const auto stub = daemon.NewStub();
  int64_t prompt = 0, generated = 0;
  double request_seconds = 0.0;
  for (int i = 1; i <= 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = Collect(*stub, TokensRequest(std::vector<int32_t>(i * 5, 3), 10 + i));
    request_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ASSERT_TRUE(outcome.status.ok());
    prompt += outcome.finished.usage().prompt_tokens();
    generated += outcome.finished.usage().completion_tokens();
  }
  ASSERT_TRUE(daemon.BecomesIdle());
  const std::string text = daemon.daemon().MetricsText();
  EXPECT_EQ(MetricSum(text, "invar_prompt_tokens_total"), prompt);
  EXPECT_EQ(MetricSum(text, "invar_generated_tokens_total"), generated);
  EXPECT_EQ(MetricSum(text, "invar_request_prompt_tokens_sum"), prompt);
  EXPECT_EQ(MetricSum(text, "invar_request_generated_tokens_sum"), generated);
  // The client's clock holds the same spans plus the way there and back.
  EXPECT_LE(MetricSum(text, "invar_request_seconds_sum"), request_seconds);
  EXPECT_GT(MetricSum(text, "invar_request_seconds_sum"), 0.2 * request_seconds);
}

TEST(Metrics, PortAnswersProbesAndScrapes) {
  RunningDaemon daemon(TinyConfig());
  const std::string ops = daemon.daemon().ops_address();
  EXPECT_EQ(HttpGet(ops, "/livez").status, 200);
  for (const char* path : {"/readyz", "/healthz", "/health"}) EXPECT_EQ(HttpGet(ops, path).status, 200) << path;
  EXPECT_THAT(HttpGet(ops, "/version").body, testing::HasSubstr("\"version\""));
  const HttpAnswer metrics = HttpGet(ops, "/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_EQ(MetricSum(metrics.body, "invar_serving"), 1.0);
  EXPECT_EQ(HttpGet(ops, "/other").status, 404);
}

TEST(Metrics, LeaveTheAliasesOutWhereTold) {
  config::Config config = TinyConfig();
  config.metrics.vllm_aliases = false;
  RunningDaemon daemon(config);
  EXPECT_EQ(daemon.daemon().MetricsText().find("vllm:"), std::string::npos);
}

TEST(Metrics, LivezFailsWhenStepsStopWhileWorkWaits) {
  StepGate gate;
  config::Config config = TinyConfig();
  config.health.stall_timeout = config::Duration(100);
  HandClock clock;
  RunningDaemon daemon(config, FingerprintLoader(&gate), &clock);
  const std::string ops = daemon.daemon().ops_address();
  EXPECT_EQ(HttpGet(ops, "/livez").status, 200);
  // One step passes, so that the request is seen running; the next one hangs.
  gate.Allow(1);
  std::thread caller([&] { Collect(*daemon.NewStub(), TokensRequest({1}, 5)); });
  gate.AwaitStanding();
  EXPECT_EQ(HttpGet(ops, "/livez").status, 200) << "its time begins when it is seen";
  clock.Advance(config.health.stall_timeout);
  EXPECT_EQ(HttpGet(ops, "/livez").status, 200);
  clock.Advance(std::chrono::milliseconds(1));
  EXPECT_EQ(HttpGet(ops, "/livez").status, 503);
  EXPECT_EQ(HttpGet(ops, "/readyz").status, 503);
  gate.Open();
  caller.join();
  EXPECT_EQ(HttpGet(ops, "/livez").status, 200);
}

TEST(Metrics, DocsInTheTreeAreThoseOfTheTables) {
  std::ifstream file(std::string(INVAR_SOURCE_DIR) + "/docs/METRICS.md");
  const std::string docs((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(docs, server::PrintMetricsDocs()) << "run: invar config --metrics-docs > docs/METRICS.md";
}

}  // namespace
}  // namespace invar::e2e
