// What sampler.h does to a row, in the words of row_chooser.h.
#include "engine/loop/chosen_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "engine/sample/logprobs.h"
#include "engine/sample/penalties.h"
#include "engine/wants_logprob.h"

namespace invar::engine {
namespace {

std::vector<int32_t> IdsOf(const std::vector<TokenId>& tokens) {
  std::vector<int32_t> ids;
  for (const TokenId token : tokens) ids.push_back(token.value());
  return ids;
}

// All but the row itself, the counts and what depends on how many tokens were sampled.
kernels::RowChoice ChoiceOf(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  kernels::RowChoice choice{.repetition = sampling.repetition_penalty,
                            .frequency = sampling.frequency_penalty,
                            .presence = sampling.presence_penalty,
                            .allowed = IdsOf(sampling.allowed_token_ids),
                            .settings = {.temperature = sampling.temperature,
                                         .top_k = sampling.top_k,
                                         .top_p = sampling.top_p,
                                         .min_p = sampling.min_p},
                            .key = {.seed = sampling.seed, .output_index = sampling.output_index},
                            .scores = WantsLogprob(request.output),
                            .alternatives = request.output.logprobs.value_or(0)};
  for (const auto& [token, bias] : sampling.logit_bias) choice.biased.push_back({token, bias});
  return choice;
}

}  // namespace

void ChosenRows::Choose(const std::span<const SpanResult> results, const std::span<const Sequence* const> of) {
  if (chooser_ == nullptr) return;
  choices_.clear();
  for (size_t i = 0; i < results.size(); ++i) Add(results[i], *of[i]);
  chosen_.resize(choices_.size());
  if (!choices_.empty()) chooser_->Choose(results.front().logits.cols, usable_ids_, choices_, chosen_);
}

void ChosenRows::Add(const SpanResult& result, const Sequence& sequence) {
  if (!Samples(sequence, result.span)) return;
  const auto known = static_cast<int32_t>(sequence.tokens().size());
  const Request& request = sequence.request();
  kernels::RowChoice choice = ChoiceOf(request);
  TokenCounts counts;
  if (UsesPenalties(request.sampling)) counts = sequence.counts();
  for (int32_t ahead = 0; ahead <= result.span.drafted; ++ahead) {
    if (ahead > 0 && UsesPenalties(request.sampling))
      counts.AddOutput(sequence.draft()[static_cast<size_t>(ahead) - 1]);
    choice.logits = result.row_behind(ahead);
    choice.penalised.clear();
    for (const TokenCounts::Count& count : counts.counts()) choice.penalised.push_back({count.token, count.in_output});
    choice.masked.clear();
    if (sequence.output_tokens() + ahead < request.stopping.min_tokens) {
      choice.masked = IdsOf(request.stopping.stop_token_ids);
    }
    choice.key.position = static_cast<uint32_t>(known + ahead);
    choices_.push_back(choice);
  }
}

const kernels::ChosenRow* ChosenRows::Find(const float* row) const {
  // Rows of one batch, in its order.
  const auto at =
      std::lower_bound(choices_.begin(), choices_.end(), row,
                       [](const kernels::RowChoice& choice, const float* to) { return choice.logits < to; });
  return at == choices_.end() || at->logits != row ? nullptr : &chosen_[static_cast<size_t>(at - choices_.begin())];
}

std::optional<TokenLogprob> LogprobOf(const kernels::ChosenRow& row) {
  TokenLogprob out{.token = TokenId(row.token), .logit = row.logit, .logprob = row.logit - row.log_sum, .top = {}};
  if (!std::isfinite(out.logprob)) return std::nullopt;
  for (const kernels::ScoredToken& of : row.top) out.top.push_back({TokenId(of.token), of.logit - row.log_sum});
  return out;
}

}  // namespace invar::engine
