// Summary of a load test and its two faces: JSON for scripts, a few lines for people.
#include "bench/serve/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace invar::bench {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const Percentiles& p) { return Json{{"p50", p.p50}, {"p95", p.p95}, {"p99", p.p99}}; }

Json ToJson(const Workload& workload) {
  Json out{{"name", workload.name}, {"seed", workload.seed}};
  if (workload.mode == Workload::Mode::kOpen) {
    out["mode"] = "open";
    out["rate_per_s"] = workload.rate_per_s;
    out["in_flight_max"] = workload.in_flight_max;
  } else {
    out["mode"] = "closed";
    out["concurrency"] = workload.concurrency;
  }
  return out;
}

std::string Line(const char* name, const Percentiles& p) {
  return fmt::format("{:<20} {:>10.2f} {:>10.2f} {:>10.2f}\n", name, p.p50 * 1e3, p.p95 * 1e3, p.p99 * 1e3);
}

}  // namespace

Percentiles PercentilesOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto rank = [&](const double share) {
    const auto count = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::max<size_t>(count, 1) - 1];
  };
  return {.p50 = rank(0.50), .p95 = rank(0.95), .p99 = rank(0.99)};
}

Report Summarize(const std::vector<RequestRecord>& records, const double duration_s) {
  Report report;
  report.requests = static_cast<int64_t>(records.size());
  report.duration_s = duration_s;
  std::vector<double> first_token, per_token, end_to_end;
  int64_t cached_tokens = 0;
  for (const RequestRecord& record : records) {
    if (!record.error.empty()) {
      ++report.failed;
      ++report.errors[record.error];
      continue;
    }
    report.prompt_tokens += record.prompt_tokens;
    report.output_tokens += record.output_tokens;
    cached_tokens += record.cached_tokens;
    first_token.push_back(record.first_token_s - record.intended_s);
    end_to_end.push_back(record.end_s - record.intended_s);
    if (record.output_tokens >= 2) {
      per_token.push_back((record.end_s - record.first_token_s) / (record.output_tokens - 1));
    }
  }
  report.first_token_s = PercentilesOf(std::move(first_token));
  report.per_token_s = PercentilesOf(std::move(per_token));
  report.end_to_end_s = PercentilesOf(std::move(end_to_end));
  if (duration_s > 0.0) {
    report.requests_per_s = static_cast<double>(report.requests - report.failed) / duration_s;
    report.tokens_per_s = static_cast<double>(report.output_tokens) / duration_s;
  }
  if (report.prompt_tokens > 0) {
    report.cached_token_share = static_cast<double>(cached_tokens) / static_cast<double>(report.prompt_tokens);
  }
  return report;
}

std::string ToJson(const Workload& workload, const Report& report) {
  const Json out{{"workload", ToJson(workload)},
                 {"requests", report.requests},
                 {"failed", report.failed},
                 {"errors", report.errors},
                 {"duration_s", report.duration_s},
                 {"requests_per_s", report.requests_per_s},
                 {"tokens_per_s", report.tokens_per_s},
                 {"prompt_tokens", report.prompt_tokens},
                 {"output_tokens", report.output_tokens},
                 {"first_token_s", ToJson(report.first_token_s)},
                 {"per_token_s", ToJson(report.per_token_s)},
                 {"end_to_end_s", ToJson(report.end_to_end_s)},
                 {"cached_token_share", report.cached_token_share}};
  return out.dump();
}

std::string ToText(const Workload& workload, const Report& report) {
  std::string out = fmt::format("{}: {} requests, {} failed, {:.1f} s\n", workload.name, report.requests, report.failed,
                                report.duration_s);
  for (const auto& [code, count] : report.errors) out += fmt::format("  {} x {}\n", count, code);
  out += fmt::format("{:.1f} tokens/s, {:.2f} requests/s, {:.1f} % of prompt tokens from the cache\n",
                     report.tokens_per_s, report.requests_per_s, report.cached_token_share * 100.0);
  out += fmt::format("{:<20} {:>10} {:>10} {:>10}\n", "milliseconds", "p50", "p95", "p99");
  out += Line("first token", report.first_token_s);
  out += Line("per output token", report.per_token_s);
  out += Line("end to end", report.end_to_end_s);
  return out;
}

}  // namespace invar::bench
