// The table and the JSON; the picture is in picture.cc.
#include "tools/eval/report.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "tools/eval/report_parts.h"

namespace invar::eval {
namespace {

// As much more, in percent, as text is less likely in perplexity.
double PerplexityLoss(const TextResult& text) { return 100.0 * std::expm1(text.loss.value()); }
// The error of a logarithm is that of a share.
double PerplexityLossError(const TextResult& text) {
  return 100.0 * std::exp(text.loss.value()) * text.loss.standard_error();
}

// Of tables: a number and its standard error.
std::string WithError(const double value, const double error, const int digits) {
  return fmt::format("{:.{}f} ±{:.{}f}", value, digits, error, digits);
}

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
          {"samples", task.samples}, {"score", task.score()},         {"answer_tokens", task.tokens},
          {"nll", task.nll()},       {"nll_loss", task.loss.value()}, {"nll_loss_error", task.loss.standard_error()}};
    }
    if (candidate.text.tokens > 0) {
      row["text"] = {{"tokens", candidate.text.tokens},
                     {"nll", candidate.text.nll()},
                     {"perplexity", std::exp(candidate.text.nll())},
                     {"perplexity_loss_percent", PerplexityLoss(candidate.text)},
                     {"perplexity_loss_percent_error", PerplexityLossError(candidate.text)},
                     {"agreement", candidate.text.agreement.value()},
                     {"agreement_error", candidate.text.agreement.standard_error()}};
    }
    row["drafts"] = nlohmann::ordered_json::array();
    for (const DraftResult& draft : candidate.drafts) {
      row["drafts"].push_back({{"draft_tokens", draft.draft_tokens},
                               {"rounds", draft.rounds},
                               {"judged", draft.judged},
                               {"accepted", draft.accepted},
                               {"acceptance", draft.acceptance.value()},
                               {"acceptance_error", draft.acceptance.standard_error()},
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
  if (results.has_unlike_keys()) add(" {:>8} {:>13}", "uuid nll", "loss");
  if (has_text) add(" {:>10} {:>12} {:>12}", "perplexity", "loss %", "agree");
  for (const int32_t tokens : options.draft_tokens) add(" {:>17}", fmt::format("draft {}", tokens));
  add("\n");
  for (const CandidateResult& candidate : results.candidates) {
    add("{:<{}} {:>6} {:>6.3f} {:>6.3f} {:>10.4f}", candidate.name, width, BudgetOf(candidate), candidate.bytes_share(),
        results.MeanScore(candidate), results.MeanNll(candidate, false));
    if (results.has_unlike_keys()) {
      add(" {:>8.4f} {:>13}", results.MeanNll(candidate, true),
          WithError(results.UnlikeKeysLoss(candidate), results.UnlikeKeysLossError(candidate), 3));
    }
    if (has_text) {
      const SpreadRatio& agreement = candidate.text.agreement;
      add(" {:>10.4f} {:>12} {:>12}", std::exp(candidate.text.nll()),
          WithError(PerplexityLoss(candidate.text), PerplexityLossError(candidate.text), 2),
          WithError(agreement.value(), agreement.standard_error(), 3));
    }
    for (const DraftResult& draft : candidate.drafts) {
      add(" {:>17}", fmt::format("{} {:.1f}", WithError(draft.acceptance.value(), draft.acceptance.standard_error(), 3),
                                 draft.tokens_a_round()));
    }
    add("\n");
  }
  if (results.tasks.empty()) return out;
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
