// The planner's choice on a grid of links, lengths, queues, speeds and caches, timed by a simulation that knows nothing
// of its formulas: steps of a producer, chunks behind one another on a link, and the run here.
#include "engine/plan_transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/transfer_protocol.h"

namespace invar::engine {
namespace {

using Kind = TransferWay::Kind;

constexpr double kMegabit = 1e6 / 8;
constexpr int64_t kChunkBytes = 1 << 20;

// A hybrid of some 100 million parameters.
constexpr PrefixSize kSize{
    .have_kv = 0, .page_tokens = 64, .page_bytes = 393'216, .state_bytes = 9'437'184, .layers = 12};

TransferProblem Problem(const int32_t end, const std::vector<ProducerQuote>& producers) {
  TransferProblem problem{.end = end, .here = {.tokens_per_second = 800}, .size = kSize, .producers = producers};
  return problem;
}

// --- The simulation ---

// Seconds until the last byte of pieces that are ready at some time each, one after another on a link.
double Arrival(const std::vector<std::pair<double, int64_t>>& pieces, const LinkSpeed& link) {
  double free_at = 0;
  for (auto [ready, bytes] : pieces) {
    for (; bytes > 0; bytes -= kChunkBytes) {
      free_at = std::max(free_at, ready) + static_cast<double>(std::min(bytes, kChunkBytes)) / link.bytes_per_second;
    }
    free_at = std::max(free_at, ready);
  }
  return free_at + link.round_trip_seconds;
}

double Simulate(const TransferProblem& problem, const TransferWay& way) {
  const auto here = [&](const double from, const int32_t tokens) {
    return tokens <= 0 ? from : from + problem.here.queue_seconds + tokens / problem.here.tokens_per_second;
  };
  if (way.kind == Kind::kHere) return here(0, problem.end - problem.here.have);
  const ProducerQuote& producer = problem.producers[way.producer];
  const PrefixSize& size = problem.size;
  std::vector<std::pair<double, int64_t>> pieces;
  if (way.kind == Kind::kAsItIs && way.end <= producer.cached) {
    const int64_t pages = (way.end + size.page_tokens - 1) / size.page_tokens - size.have_kv / size.page_tokens;
    pieces = {{0, pages * size.page_bytes + size.state_bytes}};
    return here(Arrival(pieces, producer.link), problem.end - way.end);
  }
  // Step by step: whole pages, with the last of them the state, layer after layer; or rows of codes, then what closes
  // it. Steps of a prefix as it is are cut so that the last one is whole.
  const bool coded = way.kind == Kind::kCodes;
  const CodedWay* code = nullptr;
  for (const CodedWay& one : problem.codes) code = coded && one.point == way.point ? &one : code;
  if (coded && producer.cached >= way.end && producer.point == way.point) {
    return Arrival({{0, code->bytes}}, producer.link) + code->rebuild_seconds;
  }
  int32_t done = coded ? 0 : std::min(producer.cached, way.end);
  int32_t sent_pages = size.have_kv / size.page_tokens;
  double at = producer.queue_seconds;
  if (!coded && done > 0) {
    pieces.emplace_back(at, (done / size.page_tokens - sent_pages) * size.page_bytes);
    sent_pages = done / size.page_tokens;
  }
  while (done < way.end) {
    const int32_t left = (way.end - done - 1) % producer.step_tokens + 1;
    const int32_t step = coded ? std::min(producer.step_tokens, way.end - done) : left;
    const double begin = at;
    at += step / producer.tokens_per_second;
    done += step;
    if (coded) {
      const double share = static_cast<double>(step) / way.end;
      pieces.emplace_back(at, std::llround(share * static_cast<double>(code->bytes - code->last_bytes)));
      continue;
    }
    const int32_t whole = done == way.end ? (done + size.page_tokens - 1) / size.page_tokens : done / size.page_tokens;
    const int64_t bytes = (whole - sent_pages) * size.page_bytes + (done == way.end ? size.state_bytes : 0);
    sent_pages = whole;
    if (way.end < kStreamTokens) {
      pieces.emplace_back(at, bytes);
      continue;
    }
    for (int32_t layer = 1; layer <= size.layers; ++layer) {
      pieces.emplace_back(begin + (at - begin) * layer / size.layers, bytes / size.layers);
    }
  }
  if (coded) pieces.emplace_back(at, code->last_bytes);
  return Arrival(pieces, producer.link) + (coded ? code->rebuild_seconds : 0.0);
}

TEST(PlanTransfer, IsWithinFivePercentOfTheBestChoiceEverywhere) {
  int64_t cases = 0;
  int64_t chose[3] = {};
  double worst = 0;
  for (const double megabits : {100.0, 1'000.0, 10'000.0}) {
    for (const int32_t tokens : {256, 1'000, 2'048, 4'100, 8'192}) {
      for (const double cached : {0.0, 0.3, 0.9, 1.0}) {
        for (const double producer_rate : {200.0, 800.0, 1'600.0, 12'000.0}) {
          for (const double queue_there : {0.0, 0.4}) {
            for (const double queue_here : {0.0, 0.4, 3.0}) {
              for (int form = 0; form < 4; ++form) {
                const bool equal = form % 2 == 0;
                ProducerQuote quote{.sends_as_is = equal,
                                    .sends_codes = !equal,
                                    .cached = static_cast<int32_t>(cached * tokens),
                                    .tokens_per_second = producer_rate,
                                    .queue_seconds = queue_there,
                                    .step_tokens = form < 2 ? 512 : 1'536,
                                    .link = {.bytes_per_second = megabits * kMegabit, .round_trip_seconds = 0.002}};
                const std::vector<ProducerQuote> producers = {quote};
                TransferProblem problem = Problem(tokens, producers);
                problem.here.queue_seconds = queue_here;
                for (size_t point = 0; point < 4; ++point) {
                  const int64_t row_bytes = int64_t{200} << point;
                  const int64_t last = 2'400'000 + 3'000'000 * static_cast<int64_t>(point);
                  problem.codes.push_back({.point = point,
                                           .kl = 0.01 / static_cast<double>(1 + point),
                                           .bytes = tokens * row_bytes + last,
                                           .last_bytes = last,
                                           .rebuild_seconds = tokens * 0.00004 * static_cast<double>(1 + point)});
                }
                const TransferPlan plan = PlanTransfer(problem);
                double best = std::numeric_limits<double>::infinity();
                for (const TransferWay& way : plan.ways) best = std::min(best, Simulate(problem, way));
                const double taken = Simulate(problem, plan.best);
                EXPECT_LE(taken, 1.05 * best) << ToWords(plan) << " at " << megabits << " Mbit/s, " << tokens
                                              << " tokens, cached " << cached << ", rate " << producer_rate;
                EXPECT_LE(taken, 1.05 * Simulate(problem, plan.ways.front())) << "worse than a run here";
                worst = std::max(worst, taken / best);
                ++cases;
                ++chose[static_cast<size_t>(plan.best.kind)];
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(cases, 3 * 5 * 4 * 4 * 2 * 3 * 4);
  for (const int64_t count : chose) EXPECT_GT(count, cases / 50) << "each is the best somewhere";
  RecordProperty("worst_share_of_best", std::to_string(worst));
}

// --- The rules, one by one ---

ProducerQuote Warm(const int32_t tokens, const double megabits) {
  return {.sends_as_is = true,
          .cached = tokens,
          .tokens_per_second = 800,
          .link = {.bytes_per_second = megabits * kMegabit, .round_trip_seconds = 0.001}};
}

TEST(PlanTransfer, AColdProducerOfTheSameSpeedIsNotAsked) {
  const std::vector<ProducerQuote> producers = {Warm(0, 1e6)};
  EXPECT_EQ(PlanTransfer(Problem(4096, producers)).best.kind, Kind::kHere);
}

TEST(PlanTransfer, AWarmOneIsWhereTheLinkBringsIt) {
  const std::vector<ProducerQuote> fast = {Warm(4096, 1000)};
  const TransferPlan plan = PlanTransfer(Problem(4096, fast));
  EXPECT_EQ(plan.best.kind, Kind::kAsItIs);
  EXPECT_EQ(plan.best.end, 4096);
  EXPECT_NEAR(plan.best.seconds, 0.001 + (64 * 393'216 + 9'437'184) / (1000 * kMegabit), 1e-6);
  const std::vector<ProducerQuote> slow = {Warm(4096, 10)};
  EXPECT_EQ(PlanTransfer(Problem(4096, slow)).best.kind, Kind::kHere);
}

TEST(PlanTransfer, TakesAPartWhereTheRestIsSoonerRunHere) {
  std::vector<ProducerQuote> producers = {Warm(2048, 10'000)};
  producers[0].queue_seconds = 10;
  const TransferPlan plan = PlanTransfer(Problem(4096, producers));
  EXPECT_EQ(plan.best.kind, Kind::kAsItIs);
  EXPECT_EQ(plan.best.end, 2048);
}

TEST(PlanTransfer, TheOneThatHasItIsAsked) {
  const std::vector<ProducerQuote> producers = {Warm(0, 1000), Warm(1024, 1000), Warm(4096, 1000)};
  EXPECT_EQ(PlanTransfer(Problem(4096, producers)).best.producer, 2U);
}

TEST(PlanTransfer, OfEquallyLongWaysTheBestAnswersAreTaken) {
  std::vector<ProducerQuote> producers = {Warm(0, 10'000)};
  producers[0].sends_as_is = false;
  producers[0].sends_codes = true;
  producers[0].tokens_per_second = 8'000;
  TransferProblem problem = Problem(4096, producers);
  problem.codes = {{.point = 0, .kl = 0.02, .bytes = 1'000'000, .last_bytes = 100'000, .rebuild_seconds = 0.01},
                   {.point = 1, .kl = 0.01, .bytes = 1'100'000, .last_bytes = 110'000, .rebuild_seconds = 0.012},
                   {.point = 2, .kl = 0.001, .bytes = 90'000'000, .last_bytes = 80'000'000, .rebuild_seconds = 0.5}};
  const TransferPlan plan = PlanTransfer(problem);
  EXPECT_EQ(plan.best.kind, Kind::kCodes);
  EXPECT_EQ(plan.best.point, 1U);
}

TEST(PlanTransfer, CodesThatLieReadyAreTakenWhereOthersWouldHaveToBeMade) {
  std::vector<ProducerQuote> producers = {Warm(4096, 100)};
  producers[0].sends_as_is = false;
  producers[0].sends_codes = true;
  producers[0].point = 1;
  TransferProblem problem = Problem(4096, producers);
  for (size_t point = 0; point < 3; ++point) {
    problem.codes.push_back(
        {.point = point, .kl = 0.01, .bytes = 5'000'000, .last_bytes = 4'000'000, .rebuild_seconds = 0.3});
  }
  const TransferPlan plan = PlanTransfer(problem);
  EXPECT_EQ(plan.best.kind, Kind::kCodes);
  EXPECT_EQ(plan.best.point, 1U);
  EXPECT_NEAR(plan.best.seconds, 0.001 + 0.4 + 0.3, 1e-9);
}

TEST(PlanTransfer, WhatIsNotKnownYetIsTriedOut) {
  std::vector<ProducerQuote> producers = {Warm(4096, 0)};
  producers[0].link.bytes_per_second = 0;
  TransferProblem problem = Problem(4096, producers);
  EXPECT_EQ(PlanTransfer(problem).best.kind, Kind::kAsItIs) << "a link that nothing has crossed";
  problem.here.tokens_per_second = 0;
  producers[0].cached = 0;
  EXPECT_EQ(PlanTransfer(problem).best.kind, Kind::kAsItIs) << "nothing was run here";
  EXPECT_EQ(PlanTransfer(Problem(4096, {})).best.kind, Kind::kHere);
}

TEST(PlanTransfer, SaysWhatItWeighed) {
  const std::vector<ProducerQuote> producers = {Warm(4096, 1000)};
  const std::string words = ToWords(PlanTransfer(Problem(4096, producers)));
  EXPECT_TRUE(words.starts_with("4096 tokens as they are of producer 0 0.278 s of: here 5.120 s, ")) << words;
}

}  // namespace
}  // namespace invar::engine
