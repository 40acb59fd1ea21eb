// See evaluation.h.
#include "tools/eval/evaluation.h"

#include <algorithm>
#include <optional>

#include "tools/eval/bound_view.h"
#include "tools/eval/lay_tasks.h"
#include "tools/eval/second_pass.h"

namespace invar::eval {

Evaluation::Evaluation(Subject& subject, const models::Tokenizer& tokenizer, const RowJudge& judge,
                       const Candidates& candidates, const EvaluationPlan& plan)
    : subject_(subject),
      tokenizer_(tokenizer),
      judge_(judge),
      candidates_(candidates),
      plan_(plan),
      log_(subject.spec().attention) {
  for (const Candidate& candidate : candidates.rows) {
    CandidateResult result{.name = candidate.name, .has_budget = candidate.has_budget(), .budget = candidate.budget};
    if (!candidate.is_full()) result.settings = candidate.compressor->provenance();
    result.tasks.resize(plan.tasks);
    for (const int32_t tokens : plan.draft_tokens) result.drafts.push_back({.draft_tokens = tokens});
    results_.push_back(std::move(result));
  }
}

Place Evaluation::Prefill(const std::span<const TokenId> tokens) {
  const auto window = std::min<int64_t>(candidates_.queries_shown(), std::ssize(tokens));
  Place place = subject_.Begin();
  const int64_t first = std::ssize(tokens) - window;
  subject_.Read(nullptr, place, tokens.first(first), first, {});
  log_.Restart(first);
  subject_.Read(nullptr, place, tokens.last(window), window, {}, &log_);
  if (candidates_.second_pass())
    log_.TakeSecondPass(std::ssize(tokens), SecondPass(subject_, tokenizer_, place, tokens));
  return place;
}

void Evaluation::ForEachView(const int32_t length,
                             const std::function<void(BoundView* view, CandidateResult& result)>& work) {
  for (size_t i = 0; i < results_.size(); ++i) {
    if (progress) progress();
    const Candidate& candidate = candidates_.rows[i];
    ++results_[i].views;
    if (candidate.is_full()) {
      results_[i].bytes_share_sum += 1.0;
      work(nullptr, results_[i]);
      continue;
    }
    BoundView view(subject_, *candidate.compressor, cache::Budget::Share(candidate.budget), log_, length);
    results_[i].bytes_share_sum += view.bytes_share();
    work(&view, results_[i]);
  }
}

void Evaluation::Answer(const size_t kind, const Task& task, const Prompt& prompt) {
  const Place after_context = Prefill(prompt.context);
  double full_nll = 0.0;
  ForEachView(after_context.position, [&](BoundView* view, CandidateResult& out) {
    TaskResult& result = out.tasks[kind];
    Place place = after_context;
    TokenId next;
    double nll = 0.0;
    subject_.Read(view, place, prompt.question, std::ssize(prompt.question) - 1, [&](int64_t, const auto logits) {
      next = judge_.Best(logits);
      nll += judge_.Nll(logits, prompt.gold[0]);
    });
    Place taught = place;
    const std::span<const TokenId> inputs = std::span(prompt.gold).first(prompt.gold.size() - 1);
    subject_.Read(view, taught, inputs, 0,
                  [&](const int64_t row, const auto logits) { nll += judge_.Nll(logits, prompt.gold[row + 1]); });
    const std::string answer = task.lead + WriteAnswer(view, place, next, std::ssize(prompt.gold) + kAnswerSpareTokens);
    ++result.samples;
    result.score_sum += task.score(task, answer);
    result.tokens += std::ssize(prompt.gold);
    result.nll_sum += nll;
    if (view == nullptr) full_nll = nll;
    result.loss.Add(nll - full_nll, static_cast<double>(prompt.gold.size()));
  });
}

std::string Evaluation::WriteAnswer(BoundView* view, Place place, TokenId next, const int64_t tokens_max) {
  std::vector<TokenId> written;
  while (std::ssize(written) < tokens_max && !judge_.IsStop(next)) {
    written.push_back(next);
    subject_.Read(view, place, {&written.back(), 1}, 0,
                  [&](int64_t, const auto logits) { next = judge_.Best(logits); });
  }
  return tokenizer_.Decode(written, /*skip_special=*/true);
}

void Evaluation::Predict(const std::span<const TokenId> prefix, const std::span<const TokenId> suffix) {
  const Place after_prefix = Prefill(prefix.first(prefix.size() - 1));
  std::vector<TokenId> inputs = {prefix.back()};
  inputs.insert(inputs.end(), suffix.begin(), suffix.end() - 1);
  std::vector<TokenId> full;
  double full_nll = 0.0;
  ForEachView(after_prefix.position, [&](BoundView* view, CandidateResult& out) {
    Place place = after_prefix;
    double nll = 0.0;
    int64_t agreeing = 0;
    subject_.Read(view, place, inputs, 0, [&](const int64_t row, const auto logits) {
      const TokenId best = judge_.Best(logits);
      if (view == nullptr) full.push_back(best);
      nll += judge_.Nll(logits, suffix[row]);
      agreeing += best == full[row] ? 1 : 0;
    });
    if (view == nullptr) full_nll = nll;
    out.text.tokens += std::ssize(suffix);
    out.text.nll_sum += nll;
    out.text.loss.Add(nll - full_nll, static_cast<double>(suffix.size()));
    out.text.agreement.Add(static_cast<double>(agreeing), static_cast<double>(suffix.size()));
  });
}

std::vector<TokenId> Evaluation::GreedyPath(Place place, const TokenId pending) {
  std::vector<TokenId> inputs = {pending};
  while (std::ssize(inputs) <= plan_.path_tokens && (inputs.size() == 1 || !judge_.IsStop(inputs.back()))) {
    TokenId next;
    const TokenId last = inputs.back();
    subject_.Read(
        nullptr, place, {&last, 1}, 0, [&](int64_t, const auto logits) { next = judge_.Best(logits); }, &log_);
    inputs.push_back(next);
  }
  return inputs;
}

void Evaluation::Draft(const std::span<const TokenId> prefix) {
  const Place begin = Prefill(prefix.first(prefix.size() - 1));
  const std::vector<TokenId> inputs = GreedyPath(begin, prefix.back());
  for (size_t d = 0; d < plan_.draft_tokens.size(); ++d) {
    for (size_t i = 0; i < results_.size(); ++i) {
      if (progress) progress();
      DraftRounds(candidates_.rows[i], begin, inputs, results_[i].drafts[d]);
    }
  }
}

// inputs[i] is read to choose inputs[i + 1]. A draft's tokens up to the first wrong one are those of the path, so the
// path is read in its place: what follows a wrong one is not looked at.
void Evaluation::DraftRounds(const Candidate& candidate, const Place& begin, const std::span<const TokenId> inputs,
                             DraftResult& result) {
  std::optional<BoundView> view;
  if (!candidate.is_full()) {
    view.emplace(subject_, *candidate.compressor, cache::Budget::Share(candidate.budget), log_, begin.position);
  }
  const int64_t length = result.draft_tokens;
  Place verified = begin;
  int64_t all_accepted = 0;
  int64_t all_judged = 0;
  for (int64_t at = 0; at + length < std::ssize(inputs);) {
    int64_t accepted = 0;
    bool right = true;
    Place drafted = verified;
    subject_.Read(view ? &*view : nullptr, drafted, inputs.subspan(at, length), 0,
                  [&](const int64_t row, const auto logits) {
                    right = right && judge_.Best(logits) == inputs[at + row + 1];
                    accepted += right ? 1 : 0;
                  });
    ++result.rounds;
    all_accepted += accepted;
    all_judged += std::min(accepted + 1, length);
    // The verifier reads what was accepted, and chooses one token more. Rows of the path are there since it was made:
    // where there is no recurrent state beside them, there is nothing to read again.
    if (verified.state.empty()) {
      verified.position += static_cast<int32_t>(accepted + 1);
    } else {
      subject_.Read(nullptr, verified, inputs.subspan(at, accepted + 1), accepted + 1, {});
    }
    at += accepted + 1;
    if (view && at + length < std::ssize(inputs)) view->Settle(verified.position);
  }
  result.accepted += all_accepted;
  result.judged += all_judged;
  result.acceptance.Add(static_cast<double>(all_accepted), static_cast<double>(all_judged));
}

}  // namespace invar::eval
