// Reading of traces, good and bad, and replays of small made ones through the cache manager.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tools/cache_sim/policies.h"
#include "tools/cache_sim/replay.h"
#include "tools/cache_sim/trace.h"
#include "tools/cache_sim/workloads.h"

namespace invar::cache_sim {
namespace {

constexpr int64_t kGb = 1'000'000'000;

cache::CacheOptions Options(const std::string& policy, const int64_t budget_bytes, const int64_t state_bytes) {
  cache::CacheOptions options = *OptionsOf(policy);
  options.shape = {.page_bytes = int64_t{64} * 12'288, .state_bytes = state_bytes};
  options.budget_bytes = budget_bytes;
  options.slots_without_bytes = 1;
  options.backing = cache::Backing::kNone;
  return options;
}
ReplayResult RunWith(const Trace& trace, const std::string& policy, const int64_t budget_bytes,
                     const int64_t state_bytes = 19'537'920) {
  return Replay(trace, Options(policy, budget_bytes, state_bytes));
}
int64_t Made(const ReplayResult& result) {
  int64_t made = 0;
  for (const int64_t of_kind : result.report.checkpoints_made) made += of_kind;
  return made;
}

StatusOr<Trace> Read(const std::string& text) {
  std::istringstream in(text);
  return ReadTrace(in, "t.jsonl");
}

TEST(Trace, GivesRequestsInTheOrderOfTheirArrivalWithTokensThatFollowFromIds) {
  const StatusOr<Trace> trace = Read(
      "{\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [77, 900000000000]}\n"
      "\n"
      "{\"timestamp\": 27, \"input_length\": 512, \"output_length\": 0, \"hash_ids\": [77]}\n");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->size(), 2U);
  EXPECT_EQ((*trace)[0].arrival, 27'000'000);
  const std::vector<TokenId> first = PromptOf((*trace)[0]);
  const std::vector<TokenId> second = PromptOf((*trace)[1]);
  ASSERT_EQ(second.size(), 600U);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), second.begin()));
  EXPECT_NE(second[512], second[0]);
}

struct BadLine {
  std::string name, line, wanted;
};
class BadTrace : public testing::TestWithParam<BadLine> {};

TEST_P(BadTrace, IsRefusedWithItsLineAndReason) {
  const StatusOr<Trace> trace = Read(
      "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n" + GetParam().line + "\n");
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(trace.status().message().find("t.jsonl:2:"), std::string::npos) << trace.status().message();
  EXPECT_NE(trace.status().message().find(GetParam().wanted), std::string::npos) << trace.status().message();
}

INSTANTIATE_TEST_SUITE_P(
    All, BadTrace,
    testing::Values(
        BadLine{"NotJson", "hello", "not a JSON object"}, BadLine{"Cut", "{\"timestamp\": 0,", "not a JSON object"},
        BadLine{"List", "[]", "not a JSON object"},
        BadLine{"NoTime", "{\"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}", "timestamp"},
        BadLine{"TimeBelowZero", "{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}",
                "timestamp"},
        BadLine{"TimeTooLarge",
                "{\"timestamp\": 18446744073709551615, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}",
                "timestamp"},
        BadLine{"NoInput", "{\"timestamp\": 1, \"input_length\": 0, \"output_length\": 1, \"hash_ids\": []}",
                "input_length"},
        BadLine{"InputIsText", "{\"timestamp\": 1, \"input_length\": \"9\", \"output_length\": 1, \"hash_ids\": [0]}",
                "input_length"},
        BadLine{"OutputIsFraction",
                "{\"timestamp\": 1, \"input_length\": 9, \"output_length\": 1.5, \"hash_ids\": [0]}", "output_length"},
        BadLine{"NoIds", "{\"timestamp\": 1, \"input_length\": 9, \"output_length\": 1}", "hash_ids"},
        BadLine{"FewIds", "{\"timestamp\": 1, \"input_length\": 513, \"output_length\": 1, \"hash_ids\": [0]}",
                "wants 2 hash_ids"},
        BadLine{"IdIsText", "{\"timestamp\": 1, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [\"a\"]}",
                "whole numbers"}),
    [](const testing::TestParamInfo<BadLine>& info) { return info.param.name; });

TEST(Trace, WithoutARequestOrAFileIsRefused) {
  EXPECT_EQ(Read("\n \n").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadTraceFile("/nonexistent/trace.jsonl").status().code(), StatusCode::kNotFound);
}

TEST(Replay, CountsWhatNeedNotBeRun) {
  // A chat of three turns, then a request that shares its first block only.
  Trace trace;
  const auto add = [&](const TimeNs at, const int32_t tokens, std::vector<int32_t> blocks) {
    trace.push_back({.arrival = at, .input_tokens = tokens, .output_tokens = 1, .blocks = std::move(blocks)});
  };
  add(0, 1100, {0, 1, 2});
  add(1, 2100, {0, 1, 3, 4, 5});     // Resumes at 1,024: the whole blocks of the first turn.
  add(2, 3000, {0, 1, 3, 4, 6, 7});  // At 2,048.
  add(3, 1600, {0, 9, 11, 12});      // KV of 512, no state there.
  add(4, 1000, {0, 10});             // By now there is.
  const ReplayResult result = RunWith(trace, "branch-on-demand", kNoLimitBytes);
  EXPECT_EQ(result.state_match_tokens, 1024 + 2048 + 0 + 512);
  EXPECT_EQ(result.kv_match_tokens, 1024 + 2048 + 512 + 512);
  EXPECT_EQ(result.input_tokens, 1100 + 2100 + 3000 + 1600 + 1000);
  EXPECT_EQ(RunWith(trace, "end-only", kNoLimitBytes).state_match_tokens, 1024 + 2048);
  EXPECT_EQ(RunWith(trace, "none", kNoLimitBytes).kv_match_tokens, 0);
  EXPECT_EQ(RunWith(trace, "kv-only", kNoLimitBytes).state_match_tokens, 0);
  EXPECT_EQ(Made(RunWith(trace, "kv-only", kNoLimitBytes)), 0);
  // Without recurrent layers KV is all that is needed.
  EXPECT_EQ(RunWith(trace, "default", kNoLimitBytes, 0).state_match_tokens, 1024 + 2048 + 512 + 512);
}

TEST(Replay, ARequestLargerThanTheBudgetRunsWithoutTheCache) {
  const Trace trace = SharedDocuments(1, 20);
  const ReplayResult result = RunWith(trace, "default", 100'000'000);
  EXPECT_GT(result.requests_too_large, 0);
  EXPECT_EQ(result.requests, 20);
}

TEST(Replay, SaysTheSameTwice) {
  const Trace trace = AgentSessions(3, 300);
  const ReplayResult once = RunWith(trace, "default", 2 * kGb);
  const ReplayResult again = RunWith(trace, "default", 2 * kGb);
  EXPECT_EQ(once.state_match_tokens, again.state_match_tokens);
  EXPECT_EQ(once.report.checkpoints_evicted, again.report.checkpoints_evicted);
}

TEST(Replay, EveryPolicyRunsAndLeavesNoDeadKvAfterAPass) {
  const Trace trace = SharedDocuments(5, 300);
  for (const std::string_view policy : PolicyNames()) {
    const ReplayResult result = RunWith(trace, std::string(policy), 4 * kGb);
    EXPECT_EQ(result.dead_kv_bytes_max, 0) << policy;
    EXPECT_EQ(result.requests, 300) << policy;
    EXPECT_EQ(result.report.eviction_passes > 0, policy != "none") << policy;
  }
}

TEST(Replay, MoreMemoryServesMore) {
  for (const Trace& trace : {SharedDocuments(7, 500), AgentSessions(7, 500)}) {
    for (const char* const policy : {"default", "branch-on-demand"}) {
      double before = 0;
      for (const int64_t budget : {kGb, 4 * kGb, 16 * kGb, kNoLimitBytes}) {
        const double rate = RunWith(trace, policy, budget).TokenHitRate();
        EXPECT_GE(rate, before - 0.5) << policy << " " << budget;
        before = rate;
      }
    }
  }
}

// What ships loses nowhere to what others do, where memory is short and where it is not.
TEST(Replay, TheDefaultIsAsGoodAsBranchOnDemandOnMadeTraces) {
  for (const Trace& trace : {SharedDocuments(11, 1500), AgentSessions(11, 1500)}) {
    for (const int64_t budget : {2 * kGb, 8 * kGb, 32 * kGb, kNoLimitBytes}) {
      EXPECT_GE(RunWith(trace, "default", budget).TokenHitRate(),
                RunWith(trace, "branch-on-demand", budget).TokenHitRate() - 0.3)
          << budget;
    }
  }
}

TEST(Replay, TheDuelDoesAsWellAsTheBetterOfItsOrders) {
  const Trace trace = SharedDocuments(13, 4000);
  cache::CacheOptions options = Options("default", 8 * kGb, 19'537'920);
  const auto rate = [&](const std::string& eviction) {
    options.tuning.eviction = eviction;
    return Replay(trace, options).TokenHitRate();
  };
  const double demand = rate("node-demand");
  const double recent = rate("least-recently-used");
  ASSERT_GT(demand, recent + 5);  // Otherwise this shows nothing.
  EXPECT_GE(rate("duel"), demand - 0.5);
  options.tuning.eviction = "duel";
  EXPECT_EQ(Replay(trace, options).report.eviction_order, "node-demand");
}

}  // namespace
}  // namespace invar::cache_sim
