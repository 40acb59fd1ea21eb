// See plan_transfer.h.
#include "engine/plan_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/transfer_protocol.h"

namespace invar::engine {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

double Over(const int64_t bytes, const LinkSpeed& link) {
  return link.bytes_per_second > 0 ? static_cast<double>(bytes) / link.bytes_per_second : 0.0;
}

double RunSeconds(const int32_t tokens, const double tokens_per_second) {
  if (tokens <= 0) return 0.0;
  return tokens_per_second > 0 ? tokens / tokens_per_second : kForever;
}

int64_t Pages(const PrefixSize& size, const int32_t begin, const int32_t end) {
  return std::max(0, (end + size.page_tokens - 1) / size.page_tokens - begin / size.page_tokens);
}

// A prefix as it is that a producer makes step by step, the last one a whole one: its layers go out as they are done,
// of short prompts behind each step. The last layer's bytes go out last, no byte of the last step goes out before its
// first layer, and none at all before that of the first step, or while others are on the link.
double StreamedAsItIs(const TransferProblem& problem, const ProducerQuote& producer, const int32_t to_run,
                      const int64_t bytes) {
  const PrefixSize& size = problem.size;
  const int32_t last_tokens = std::min(to_run, producer.step_tokens);
  const int32_t first_tokens = (to_run - 1) % producer.step_tokens + 1;
  const int32_t layers = problem.end - size.have_kv < kStreamTokens ? 1 : std::max(1, size.layers);
  const auto to_run_bytes = [&](const int32_t tokens) {
    return Pages(size, std::max(size.have_kv, problem.end - tokens), problem.end) * size.page_bytes + size.state_bytes;
  };
  const double all = RunSeconds(to_run, producer.tokens_per_second);
  const double last = RunSeconds(last_tokens, producer.tokens_per_second);
  const double first = RunSeconds(first_tokens, producer.tokens_per_second);
  const double last_bytes = Over(to_run_bytes(last_tokens), producer.link);
  const double behind_run = all + last_bytes / layers;
  const double behind_last_step = all - last + last / layers + last_bytes;
  const double behind_first_step = first / layers + Over(std::min(bytes, to_run_bytes(to_run)), producer.link);
  return producer.link.round_trip_seconds + producer.queue_seconds +
         std::max({behind_run, behind_last_step, behind_first_step, Over(bytes, producer.link)});
}

// Codes that a producer makes step by step: those behind the last step go out last, and no byte goes out before the
// first step or while others are on the link.
double Streamed(const ProducerQuote& producer, const int32_t to_run, const int64_t bytes, const int64_t last_bytes) {
  const double all = RunSeconds(to_run, producer.tokens_per_second);
  const double first = RunSeconds(std::min(to_run, producer.step_tokens), producer.tokens_per_second);
  const double behind_run = all + Over(last_bytes, producer.link);
  const double behind_link = first + Over(bytes, producer.link);
  return producer.link.round_trip_seconds + producer.queue_seconds + std::max(behind_run, behind_link);
}

void AddAsItIs(const TransferProblem& problem, const size_t index, std::vector<TransferWay>& ways) {
  const ProducerQuote& producer = problem.producers[index];
  const PrefixSize& size = problem.size;
  const auto bytes_to = [&](const int32_t end) {
    return Pages(size, std::min(size.have_kv, end), end) * size.page_bytes + size.state_bytes;
  };
  const int32_t cached = std::min(producer.cached, problem.end);
  const int32_t to_run = problem.end - cached;
  // A producer sends what it has where only a page's worth is lacking.
  if (cached > problem.here.have) {
    const double rest = RunSeconds(to_run, problem.here.tokens_per_second);
    const double here = to_run > 0 ? problem.here.queue_seconds : 0.0;
    ways.push_back({.kind = TransferWay::Kind::kAsItIs,
                    .producer = index,
                    .end = cached,
                    .seconds = producer.link.round_trip_seconds + Over(bytes_to(cached), producer.link) + here + rest});
  }
  if (to_run > 0) {
    ways.push_back({.kind = TransferWay::Kind::kAsItIs,
                    .producer = index,
                    .end = problem.end,
                    .seconds = StreamedAsItIs(problem, producer, to_run, bytes_to(problem.end))});
  }
}

void AddCodes(const TransferProblem& problem, const size_t index, std::vector<TransferWay>& ways) {
  const ProducerQuote& producer = problem.producers[index];
  for (const CodedWay& code : problem.codes) {
    const bool lies_ready = producer.cached >= problem.end && code.point == producer.point;
    const double comes = lies_ready ? producer.link.round_trip_seconds + Over(code.bytes, producer.link)
                                    : Streamed(producer, problem.end, code.bytes, code.last_bytes);
    ways.push_back({.kind = TransferWay::Kind::kCodes,
                    .producer = index,
                    .end = problem.end,
                    .point = code.point,
                    .kl = code.kl,
                    .seconds = comes + code.rebuild_seconds});
  }
}

}  // namespace

TransferPlan PlanTransfer(const TransferProblem& problem) {
  TransferPlan plan;
  plan.ways.push_back({.kind = TransferWay::Kind::kHere,
                       .seconds = problem.here.queue_seconds +
                                  RunSeconds(problem.end - problem.here.have, problem.here.tokens_per_second)});
  for (size_t i = 0; i < problem.producers.size(); ++i) {
    if (problem.producers[i].sends_as_is) {
      AddAsItIs(problem, i, plan.ways);
    } else if (problem.producers[i].sends_codes) {
      AddCodes(problem, i, plan.ways);
    }
  }
  const auto shortest = std::ranges::min_element(plan.ways, {}, &TransferWay::seconds);
  plan.best = plan.ways.front();
  if (plan.best.seconds <= shortest->seconds * (1.0 + kPlanSlack)) return plan;
  plan.best = *shortest;
  for (const TransferWay& way : plan.ways) {
    if (way.seconds <= shortest->seconds * (1.0 + kPlanSlack) && way.kl < plan.best.kl) plan.best = way;
  }
  return plan;
}

std::string ToWords(const TransferPlan& plan) {
  const auto words = [](const TransferWay& way) {
    switch (way.kind) {
      case TransferWay::Kind::kHere:
        return fmt::format("here {:.3f} s", way.seconds);
      case TransferWay::Kind::kAsItIs:
        return fmt::format("{} tokens as they are of producer {} {:.3f} s", way.end, way.producer, way.seconds);
      case TransferWay::Kind::kCodes:
        return fmt::format("codes {} of producer {} {:.3f} s", way.point, way.producer, way.seconds);
    }
    return std::string();
  };
  std::string text = words(plan.best);
  for (const TransferWay& way : plan.ways) text += (&way == &plan.ways.front() ? " of: " : ", ") + words(way);
  return text;
}

}  // namespace invar::engine
