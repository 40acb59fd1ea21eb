// Workload files and plans: strict keys, one seed one plan, arrivals of the stated rate.
#include "bench/serve/workload.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

namespace invar::bench {
namespace {

constexpr int32_t kVocabulary = 2048;

TEST(Workload, ReadsEveryField) {
  const StatusOr<Workload> workload = ParseWorkload(R"(
name: all
seed: 7
requests: 11
warmup_requests: 3
arrivals: {mode: open, rate_per_s: 2.5, in_flight_max: 9}
prompt_tokens: {min: 4, max: 6}
output_tokens: {min: 2, max: 2}
shared_prefix: {groups: 2, tokens: 10}
temperature: 0.5
)");
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  EXPECT_EQ(workload->name, "all");
  EXPECT_EQ(workload->seed, 7u);
  EXPECT_EQ(workload->requests, 11);
  EXPECT_EQ(workload->warmup_requests, 3);
  EXPECT_EQ(workload->mode, Workload::Mode::kOpen);
  EXPECT_DOUBLE_EQ(workload->rate_per_s, 2.5);
  EXPECT_EQ(workload->in_flight_max, 9);
  EXPECT_EQ(workload->prompt_tokens.min, 4);
  EXPECT_EQ(workload->output_tokens.max, 2);
  EXPECT_EQ(workload->prefix_groups, 2);
  EXPECT_EQ(workload->prefix_tokens, 10);
  EXPECT_DOUBLE_EQ(workload->temperature, 0.5);
}

struct BadFile {
  const char* name;
  const char* yaml;
  const char* said;  // Must stand in the message.
};

class BadWorkload : public testing::TestWithParam<BadFile> {};

TEST_P(BadWorkload, IsRefusedWithTheKeyAtFault) {
  const StatusOr<Workload> workload = ParseWorkload(GetParam().yaml);
  ASSERT_FALSE(workload.ok());
  EXPECT_EQ(workload.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(workload.status().message().find(GetParam().said), std::string::npos) << workload.status().message();
}

INSTANTIATE_TEST_SUITE_P(Files, BadWorkload,
                         testing::Values(BadFile{"UnknownKey", "request: 3", "`request`"},
                                         BadFile{"NoMap", "[1, 2]", "must be a map"},
                                         BadFile{"Word", "requests: many", "`requests`"},
                                         BadFile{"Zero", "requests: 0", "`requests`"},
                                         BadFile{"UnknownMode", "arrivals: {mode: burst}", "burst"},
                                         BadFile{"OpenWithoutRate", "arrivals: {mode: open}", "rate_per_s"},
                                         BadFile{"ClosedWithoutConcurrency", "arrivals: {mode: closed}", "concurrency"},
                                         BadFile{"NanRate", "arrivals: {mode: open, rate_per_s: .nan}", "rate_per_s"},
                                         BadFile{"EmptyRange", "prompt_tokens: {min: 9, max: 3}", "max"},
                                         BadFile{"HalfARange", "output_tokens: {min: 9}", "min and max"},
                                         BadFile{"BrokenYaml", "requests: [", "workload"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Workload, ShippedFilesAreValid) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(INVAR_SOURCE_DIR "/bench/workloads")) {
    if (entry.path().extension() != ".yaml") continue;
    const StatusOr<Workload> workload = LoadWorkload(entry.path());
    EXPECT_TRUE(workload.ok()) << entry.path() << ": " << workload.status().message();
    ++files;
  }
  EXPECT_GE(files, 3);
}

TEST(Workload, OneSeedGivesOnePlan) {
  Workload workload;
  workload.requests = 20;
  workload.mode = Workload::Mode::kOpen;
  workload.prompt_tokens = {.min = 1, .max = 50};
  const auto first = PlanRequests(workload, kVocabulary);
  const auto second = PlanRequests(workload, kVocabulary);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].prompt, second[i].prompt);
    EXPECT_EQ(first[i].arrival_s, second[i].arrival_s);
  }
  workload.seed = 2;
  EXPECT_NE(PlanRequests(workload, kVocabulary)[0].prompt, first[0].prompt);
}

TEST(Workload, RequestsOfAGroupShareItsWholePrefix) {
  Workload workload;
  workload.requests = 64;
  workload.prefix_groups = 3;
  workload.prefix_tokens = 40;
  std::set<std::vector<int32_t>> prefixes;
  for (const PlannedRequest& request : PlanRequests(workload, kVocabulary)) {
    ASSERT_EQ(request.prompt.size(), 104u);
    prefixes.emplace(request.prompt.begin(), request.prompt.begin() + 40);
  }
  EXPECT_EQ(prefixes.size(), 3u);
}

TEST(Workload, LengthsAndTokensStayInTheirRanges) {
  Workload workload;
  workload.requests = 500;
  workload.prompt_tokens = {.min = 3, .max = 9};
  workload.output_tokens = {.min = 1, .max = 4};
  std::set<size_t> lengths;
  for (const PlannedRequest& request : PlanRequests(workload, 5)) {
    lengths.insert(request.prompt.size());
    EXPECT_GE(request.output_tokens, 1);
    EXPECT_LE(request.output_tokens, 4);
    for (const int32_t token : request.prompt) EXPECT_TRUE(token >= 0 && token < 5) << token;
  }
  EXPECT_EQ(*lengths.begin(), 3u);
  EXPECT_EQ(*lengths.rbegin(), 9u);
}

TEST(Workload, OpenArrivalsAscendAtTheStatedRate) {
  Workload workload;
  workload.requests = 10'000;
  workload.mode = Workload::Mode::kOpen;
  workload.rate_per_s = 50.0;
  const auto plan = PlanRequests(workload, kVocabulary);
  for (size_t i = 1; i < plan.size(); ++i) EXPECT_LT(plan[i - 1].arrival_s, plan[i].arrival_s);
  // 10,000 gaps of mean 1/50 s sum to 200 s with deviation 2 s; five deviations.
  EXPECT_NEAR(plan.back().arrival_s, 200.0, 10.0);
}

}  // namespace
}  // namespace invar::bench
