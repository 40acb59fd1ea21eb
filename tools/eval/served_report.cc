// The table and the JSON of answers as they are served.
#include <fmt/format.h>

#include <iterator>

#include "tools/eval/report_parts.h"

namespace invar::eval {
namespace {

nlohmann::ordered_json ToJson(const ServedResults& results, const ServedAnswers& answers) {
  nlohmann::ordered_json right = nlohmann::ordered_json::object();
  for (size_t i = 0; i < answers.right.size(); ++i) right[results.tasks[i]] = answers.right[i];
  return {{"answers", answers.answers},
          {"right", right},
          {"lost", answers.lost},
          {"differing", answers.differing},
          {"drafted_tokens", answers.drafted_tokens},
          {"accepted_tokens", answers.accepted_tokens}};
}

}  // namespace

nlohmann::ordered_json ToJson(const EvalHeading& heading, const EvalOptions& options, const ServedResults& results) {
  nlohmann::ordered_json json = HeadOf(heading, options);
  json["plain"] = options.plain;
  json["draft_tokens"] = options.draft_tokens;
  json["full"] = ToJson(results, results.full);
  json["full_in_company"] = ToJson(results, results.full_in_company);
  json["rows"] = nlohmann::ordered_json::array();
  for (const ServedRow& row : results.rows) {
    nlohmann::ordered_json out = HeadOf(row);
    out["approximate"] = ToJson(results, row.approximate);
    out["lossless"] = row.drafts ? ToJson(results, row.lossless) : nlohmann::ordered_json(nullptr);
    json["rows"].push_back(std::move(out));
  }
  return json;
}

std::string ToTable(const ServedResults& results) {
  const size_t width = NameWidth(results.rows);
  std::string out;
  const auto add = [&]<typename... Values>(const fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Values>(values)...);
  };
  const auto add_tasks = [&](const ServedAnswers& answers) {
    for (const int32_t right : answers.right) add(" {:>15}", right);
    add("\n");
  };
  add("full KV: {} of {} answers right; once more, in company: {} lost, {} differ\n", results.full.all_right(),
      results.full.answers, results.full_in_company.lost, results.full_in_company.differing);
  add("{:<{}} {:>6} {:>11} {:>5} {:>14} {:>5} {:>7} {:>8}\n", "compressor", width, "budget", "approximate", "lost",
      "lossless", "lost", "differ", "accepted");
  for (const ServedRow& row : results.rows) {
    add("{:<{}} {:>6} {:>11} {:>5}", row.name, width, BudgetOf(row), row.approximate.all_right(), row.approximate.lost);
    if (row.drafts) {
      const ServedAnswers& lossless = row.lossless;
      add(" {:>14} {:>5} {:>7} {:>8.3f}", fmt::format("{} of {}", lossless.all_right(), lossless.answers),
          lossless.lost, lossless.differing,
          lossless.drafted_tokens > 0
              ? static_cast<double>(lossless.accepted_tokens) / static_cast<double>(lossless.drafted_tokens)
              : 0.0);
    } else {
      add(" {:>14}", "not possible");
    }
    add("\n");
  }
  add("\nright answers APPROXIMATE, by task\n{:<{}} {:>6}", "compressor", width, "budget");
  for (const std::string& task : results.tasks) add(" {:>15}", task);
  add("\n{:<{}} {:>6}", "full", width, "-");
  add_tasks(results.full);
  for (const ServedRow& row : results.rows) {
    add("{:<{}} {:>6}", row.name, width, BudgetOf(row));
    add_tasks(row.approximate);
  }
  return out;
}

}  // namespace invar::eval
