// See run.h.
#include "tools/eval/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/eval/evaluation.h"
#include "tools/eval/lay_tasks.h"
#include "tools/eval/second_pass.h"
#include "tools/eval/windows.h"

namespace invar::eval {
namespace {

// Made text to draft on, where nobody gave one.
StatusOr<std::vector<TextWindow>> MadeWindows(const EvalModel& model, const EvalOptions& options) {
  const NoiseText noise;
  std::vector<TextWindow> windows;
  for (int32_t sample = 0; sample < options.samples; ++sample) {
    std::string text;
    // A sentence has a token at least.
    for (int32_t i = 0; i < options.context_tokens; ++i) text += noise.Sentence(options.seed + sample, i) + " ";
    StatusOr<std::vector<TokenId>> tokens =
        model.tokenizer.Encode(text, models::ControlTokens::kStayText, /*add_special=*/true, {});
    if (!tokens.ok()) return tokens.status();
    tokens->resize(options.context_tokens);
    windows.push_back({.prefix = *std::move(tokens), .suffix = {}});
  }
  return windows;
}

// Of one sequence: the longest of all that is read.
int32_t TokensMax(const EvalOptions& options, const Candidates& candidates, const std::span<const LaidTask> tasks) {
  int64_t tokens = int64_t{options.context_tokens} + options.suffix_tokens;
  if (candidates.second_pass()) {
    tokens = std::max<int64_t>(tokens, int64_t{options.context_tokens} + SecondPassTokens(options.context_tokens));
  }
  if (!options.draft_tokens.empty())
    tokens = std::max(tokens, int64_t{options.context_tokens} + options.path_tokens + 1);
  for (const LaidTask& task : tasks) tokens = std::max(tokens, task.tokens());
  return static_cast<int32_t>(std::min<int64_t>(tokens, INT32_MAX));
}

}  // namespace

Status CheckOptions(const EvalOptions& options) {
  const StatusOr<Candidates> candidates = MakeCandidates(options.compressors, options.budgets);
  if (!candidates.ok()) return candidates.status();
  const StatusOr<std::vector<const TaskKind*>> kinds = KindsOf(options.tasks);
  if (!kinds.ok()) return kinds.status();
  return ReadTexts(options.text_paths).status();
}

StatusOr<EvalResults> RunEval(const EvalModel& model, const EvalOptions& options,
                              const std::function<void(int64_t done, int64_t total)>& progress) {
  const StatusOr<Candidates> candidates = MakeCandidates(options.compressors, options.budgets);
  if (!candidates.ok()) return candidates.status();
  const StatusOr<std::vector<const TaskKind*>> kinds = KindsOf(options.tasks);
  if (!kinds.ok()) return kinds.status();
  // Before tasks are composed: too long a context is said at once.
  if (options.context_tokens > model.model.spec().max_sequence_tokens) {
    return InvalidArgument(fmt::format("--context-tokens: {}, wanted at most the model's {}; give fewer",
                                       options.context_tokens, model.model.spec().max_sequence_tokens));
  }
  StatusOr<std::string> text = ReadTexts(options.text_paths);
  if (!text.ok()) return text.status();
  StatusOr<std::vector<TextWindow>> windows = options.text_paths.empty()
                                                  ? MadeWindows(model, options)
                                                  : CutWindows(model.tokenizer, options.text_paths,
                                                               {.windows = options.samples,
                                                                .prefix_tokens = options.context_tokens,
                                                                .suffix_tokens = options.suffix_tokens});
  if (!windows.ok()) return windows.status();
  const NoiseText noise(*text);
  StatusOr<std::vector<LaidTask>> tasks = LayTasks(
      model.tokenizer, options.plain ? nullptr : model.chat,
      {.context_tokens = options.context_tokens, .samples = options.samples, .seed = options.seed}, noise, *kinds);
  if (!tasks.ok()) return tasks.status();

  StatusOr<std::unique_ptr<Subject>> subject = Subject::Make(
      model.model, model.backend, {.tokens_max = TokensMax(options, *candidates, *tasks), .rows_max = model.rows_max});
  if (!subject.ok()) return subject.status();
  const RowJudge judge(model.sampler, model.tokenizer.vocabulary_size(), model.stops);
  Evaluation evaluation(
      **subject, model.tokenizer, judge, *candidates,
      {.tasks = kinds->size(), .draft_tokens = options.draft_tokens, .path_tokens = options.path_tokens});
  int64_t done = 0;
  const int64_t predictions = options.text_paths.empty() ? 0 : std::ssize(*windows);
  const int64_t total = std::ssize(candidates->rows) *
                        (std::ssize(*tasks) + predictions + std::ssize(*windows) * std::ssize(options.draft_tokens));
  if (progress) evaluation.progress = [&] { progress(done++, total); };
  for (const LaidTask& task : *tasks) evaluation.Answer(task.kind, task.task, task.prompt);
  for (const TextWindow& window : *windows) {
    if (!window.suffix.empty()) evaluation.Predict(window.prefix, window.suffix);
    if (!options.draft_tokens.empty()) evaluation.Draft(window.prefix);
  }
  if (progress) progress(total, total);

  EvalResults results;
  for (const TaskKind* kind : *kinds) results.tasks.emplace_back(kind->name);
  results.candidates.assign(evaluation.results().begin(), evaluation.results().end());
  return results;
}

double EvalResults::MeanScore(const CandidateResult& candidate) const {
  double sum = 0.0;
  for (const TaskResult& task : candidate.tasks) sum += task.score();
  return candidate.tasks.empty() ? 0.0 : sum / static_cast<double>(candidate.tasks.size());
}

double EvalResults::MeanNll(const CandidateResult& candidate, const bool unlike_keys) const {
  double sum = 0.0;
  int64_t count = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (unlike_keys && !FindTaskKind(tasks[i])->unlike_keys) continue;
    sum += candidate.tasks[i].nll();
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : 0.0;
}

double EvalResults::UnlikeKeysLoss(const CandidateResult& candidate) const {
  return MeanNll(candidate, true) - MeanNll(candidates.front(), true);
}

double EvalResults::UnlikeKeysLossError(const CandidateResult& candidate) const {
  double squares = 0.0;
  int64_t count = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!FindTaskKind(tasks[i])->unlike_keys) continue;
    squares += std::pow(candidate.tasks[i].loss.standard_error(), 2);
    ++count;
  }
  return count > 0 ? std::sqrt(squares) / static_cast<double>(count) : 0.0;
}

bool EvalResults::has_unlike_keys() const {
  return std::ranges::any_of(tasks, [](const std::string& name) { return FindTaskKind(name)->unlike_keys; });
}

}  // namespace invar::eval
