// The table and the JSON; the picture is in picture.cc.
#include "tools/eval/report.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "tools/eval/report_parts.h"

namespace invar::eval {
namespace {

// As much more, in percent, as `nll` is less likely than `full` in perplexity.
double PerplexityLoss(const double nll, const double full) { return 100.0 * (std::exp(nll - full) - 1.0); }

}  // namespace

nlohmann::ordered_json ToJson(const EvalHeading& heading, const EvalOptions& options, const EvalResults& results) {
  nlohmann::ordered_json json = HeadOf(heading, options);
  json["suffix_tokens"] = options.suffix_tokens;
  json["path_tokens"] = options.path_tokens;
  json["plain"] = options.plain;
  json["text"] = options.text_paths;
  json["candidates"] = nlohmann::ordered_json::array();
  for (const CandidateResult& candidate : results.candidates) {
    nlohmann::ordered_json row = HeadOf(candidate);
    row["bytes_share"] = candidate.bytes_share();
    row["tasks"] = nlohmann::ordered_json::object();
    for (size_t i = 0; i < results.tasks.size(); ++i) {
      const TaskResult& task = candidate.tasks[i];
      row["tasks"][results.tasks[i]] = {
          {"samples", task.samples}, {"score", task.score()}, {"answer_tokens", task.tokens}, {"nll", task.nll()}};
    }
    if (candidate.text.tokens > 0) {
      row["text"] = {
          {"tokens", candidate.text.tokens},
          {"nll", candidate.text.nll()},
          {"perplexity", std::exp(candidate.text.nll())},
          {"perplexity_loss_percent", PerplexityLoss(candidate.text.nll(), results.candidates.front().text.nll())},
          {"agreement", candidate.text.agreement()}};
    }
    row["drafts"] = nlohmann::ordered_json::array();
    for (const DraftResult& draft : candidate.drafts) {
      row["drafts"].push_back({{"draft_tokens", draft.draft_tokens},
                               {"rounds", draft.rounds},
                               {"judged", draft.judged},
                               {"accepted", draft.accepted},
                               {"acceptance", draft.acceptance()},
                               {"tokens_a_round", draft.tokens_a_round()}});
    }
    json["candidates"].push_back(std::move(row));
  }
  return json;
}

std::string ToTable(const EvalOptions& options, const EvalResults& results) {
  const CandidateResult& full = results.candidates.front();
  const size_t width = NameWidth(results.candidates);
  std::string out;
  const auto add = [&]<typename... Values>(const fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Values>(values)...);
  };
  const bool has_text = full.text.tokens > 0;
  add("{:<{}} {:>6} {:>6} {:>6} {:>10}", "compressor", width, "budget", "bytes", "score", "answer nll");
  if (results.has_unlike_keys()) add(" {:>8}", "uuid nll");
  if (has_text) add(" {:>10} {:>7} {:>6}", "perplexity", "loss %", "agree");
  for (const int32_t tokens : options.draft_tokens) add(" {:>12}", fmt::format("draft {}", tokens));
  add("\n");
  for (const CandidateResult& candidate : results.candidates) {
    add("{:<{}} {:>6} {:>6.3f} {:>6.3f} {:>10.4f}", candidate.name, width, BudgetOf(candidate), candidate.bytes_share(),
        results.MeanScore(candidate), results.MeanNll(candidate, false));
    if (results.has_unlike_keys()) add(" {:>8.4f}", results.MeanNll(candidate, true));
    if (has_text) {
      add(" {:>10.4f} {:>7.2f} {:>6.3f}", std::exp(candidate.text.nll()),
          PerplexityLoss(candidate.text.nll(), full.text.nll()), candidate.text.agreement());
    }
    for (const DraftResult& draft : candidate.drafts)
      add(" {:>12}", fmt::format("{:.3f} {:.1f}", draft.acceptance(), draft.tokens_a_round()));
    add("\n");
  }
  add("\nscore and nll of right answers, by task\n{:<{}} {:>6}", "compressor", width, "budget");
  for (const std::string& task : results.tasks) add(" {:>15}", task);
  add("\n");
  for (const CandidateResult& candidate : results.candidates) {
    add("{:<{}} {:>6}", candidate.name, width, BudgetOf(candidate));
    for (const TaskResult& task : candidate.tasks)
      add(" {:>15}", fmt::format("{:.2f} {:.3f}", task.score(), task.nll()));
    add("\n");
  }
  return out;
}

}  // namespace invar::eval
