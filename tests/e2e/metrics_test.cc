// The numbers add up: in every scrape while load runs, and against what clients measured.
#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>
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

// Of each family its labels, and of each label the values: what a scrape shows, or what the docs promise ("any": many).
using LabelValues = std::map<std::string, std::map<std::string, std::set<std::string>>>;

LabelValues LabelsOfScrape(const std::string& text) {
  LabelValues families;
  std::istringstream lines(text);
  const std::regex sample(R"(^([a-z_:]+)(\{(.*)\})? .*$)");
  const std::regex label(R"re(([a-z_]+)="([^"]*)")re");
  std::string histogram;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line.starts_with("# TYPE ")) {
      histogram = line.ends_with(" histogram") ? line.substr(7, line.rfind(' ') - 7) : "";
    } else if (std::regex_match(line, match, sample)) {
      auto& labels = families[histogram.empty() ? match[1].str() : histogram];
      const std::string all = match[3];
      for (std::sregex_iterator at(all.begin(), all.end(), label); at != std::sregex_iterator(); ++at) {
        if ((*at)[1] != "le") labels[(*at)[1]].insert((*at)[2]);
      }
    }
  }
  return families;
}

LabelValues LabelsOfDocs(const std::string& docs) {
  LabelValues families;
  const std::regex row(R"(\| `([a-z_:]+)` \| [a-z]+ \| ([^|]*) ?\|.*)");
  const std::regex label(R"(([a-z_]+)( \(([^)]*)\))?(, |\s*$))");
  std::istringstream lines(docs);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) continue;
    auto& labels = families[match[1]];
    const std::string all = match[2];
    for (std::sregex_iterator at(all.begin(), all.end(), label); at != std::sregex_iterator(); ++at) {
      std::set<std::string>& values = labels[(*at)[1]];
      std::istringstream list((*at)[3]);
      for (std::string value; std::getline(list, value, ',');)
        values.insert(value.substr(value.find_first_not_of(' ')));
      if (values.empty()) values = {"any"};
    }
  }
  return families;
}

TEST(Metrics, DocsNameEveryFamilyWithItsLabelsAndTheirValues) {
  config::Config config = TinyConfig();
  config.cache.tiers.ram.budget = 1 << 20;
  RunningDaemon daemon(config);
  ASSERT_TRUE(Collect(*daemon.NewStub(), TokensRequest({1, 2, 3}, 3)).status.ok());
  LabelValues scrape = LabelsOfScrape(daemon.daemon().MetricsText());
  const LabelValues docs = LabelsOfDocs(server::PrintMetricsDocs());
  for (const auto& [family, labels] : docs) {
    ASSERT_TRUE(scrape.contains(family)) << family;
    for (const auto& [label, values] : labels) {
      ASSERT_TRUE(scrape[family].contains(label)) << family << " " << label;
      // All tiers are named; one is configured here.
      if (values.contains("any") || label == "tier") continue;
      EXPECT_EQ(scrape[family][label], values) << family << " " << label;
    }
    EXPECT_EQ(scrape[family].size(), labels.size()) << family << " has a label that the docs do not name";
  }
  for (const auto& [family, labels] : scrape) {
    if (family.starts_with("vllm:")) continue;
    EXPECT_TRUE(docs.contains(family)) << family;
  }
  // Aliases differ as the docs say.
  EXPECT_EQ(scrape["vllm:request_success_total"].size(), 3u);
  EXPECT_TRUE(scrape["vllm:request_success_total"].contains("finished_reason"));
  EXPECT_TRUE(scrape["vllm:num_requests_running"].contains("model_name"));
}

// In every histogram's row stand the bounds of its buckets.
TEST(Metrics, DocsNameTheBucketsOfEveryHistogram) {
  RunningDaemon daemon(TinyConfig());
  const std::string text = daemon.daemon().MetricsText();
  const std::regex row(R"(\| `([a-z_]+)` \| histogram \|.*Buckets: ([0-9., ]*[0-9]) \|)");
  std::istringstream lines(server::PrintMetricsDocs());
  int histograms = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("| histogram |") == std::string::npos) continue;
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, row)) << line;
    std::vector<double> written, scraped;
    std::istringstream list(match[2]);
    for (std::string bound; std::getline(list, bound, ',');) written.push_back(std::stod(bound));
    const std::string begin = match[1].str() + "_bucket{";
    const std::regex le("le=\"([0-9.e+-]+)\"");
    std::istringstream samples(text);
    for (std::string sample; std::getline(samples, sample);) {
      std::smatch bound;
      if (sample.starts_with(begin) && std::regex_search(sample, bound, le)) scraped.push_back(std::stod(bound[1]));
    }
    EXPECT_EQ(written, scraped) << match[1];
    ++histograms;
  }
  EXPECT_GE(histograms, 10);
}

TEST(Metrics, DocsInTheTreeAreThoseOfTheTables) {
  std::ifstream file(std::string(INVAR_SOURCE_DIR) + "/docs/METRICS.md");
  const std::string docs((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(docs, server::PrintMetricsDocs()) << "run: invar config --metrics-docs > docs/METRICS.md";
}

}  // namespace
}  // namespace invar::e2e
