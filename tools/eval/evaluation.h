// The measurements: one context is prefilled exactly, then every candidate's view of it is read. What is measured adds
// up in results(), one a candidate, in the candidates' order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/compressed/query_log.h"
#include "tools/eval/candidates.h"
#include "tools/eval/prompt.h"
#include "tools/eval/results.h"
#include "tools/eval/row_judge.h"
#include "tools/eval/subject.h"

namespace invar::eval {

struct EvaluationPlan {
  size_t tasks = 0;                   // Kinds of them.
  std::vector<int32_t> draft_tokens;  // Lengths of drafts.
  int32_t path_tokens = 0;            // Greedy tokens that drafts are judged by.
};

class Evaluation {
 public:
  // Requires: all outlive this.
  Evaluation(Subject& subject, const models::Tokenizer& tokenizer, const RowJudge& judge, const Candidates& candidates,
             const EvaluationPlan& plan);

  // Answers `task`, the `kind`-th of the plan, as serving on a view would: the question and all that follows are read
  // on what is left of the context. Then the same with the right answer taught.
  void Answer(size_t kind, const Task& task, const Prompt& prompt);

  // The likelihood of `suffix` behind a compressed `prefix`. The prefix's last token is read on the view, as its row
  // says the suffix's first.
  void Predict(std::span<const TokenId> prefix, std::span<const TokenId> suffix);

  // How many tokens of drafts on a view are those of the full KV behind `prefix`. After each round the view's tail gets
  // the exact rows of what was accepted, then upkeep.
  void Draft(std::span<const TokenId> prefix);

  std::span<const CandidateResult> results() const { return results_; }
  // Called before each candidate of each call above. May be empty.
  std::function<void()> progress;

 private:
  // Makes `tokens` the exact sequence.
  Place Prefill(std::span<const TokenId> tokens);
  // Calls work(view, result) for every candidate; the view is null for the full KV.
  void ForEachView(int32_t length, const std::function<void(BoundView* view, CandidateResult& result)>& work);
  std::string WriteAnswer(BoundView* view, Place place, TokenId next, int64_t tokens_max);
  // The full KV's greedy tokens behind `place`, whose next input is `pending`.
  std::vector<TokenId> GreedyPath(Place place, TokenId pending);
  void DraftRounds(const Candidate& candidate, const Place& begin, std::span<const TokenId> inputs,
                   DraftResult& result);

  Subject& subject_;
  const models::Tokenizer& tokenizer_;
  const RowJudge& judge_;
  const Candidates& candidates_;
  const EvaluationPlan plan_;
  engine::QueryLog log_;
  std::vector<CandidateResult> results_;
};

}  // namespace invar::eval
