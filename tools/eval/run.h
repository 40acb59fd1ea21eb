// A whole evaluation, from what a user asked for to the numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/sample.h"
#include "models/model.h"
#include "models/text.h"
#include "tools/eval/results.h"

namespace invar::eval {

struct EvalOptions {
  std::vector<std::string> compressors;
  std::vector<double> budgets = {0.5, 0.25};
  int32_t context_tokens = 1024;  // Compressed, of every task and text.
  int32_t samples = 4;            // Of every task, and windows of text.
  uint64_t seed = 1;
  std::vector<std::string> tasks;       // Empty: all.
  std::vector<std::string> text_paths;  // Noise, and texts to go on with.
  int32_t suffix_tokens = 128;
  std::vector<int32_t> draft_tokens = {1, 4, 16, 64};
  int32_t path_tokens = 195;  // Three rounds of the longest draft, accepted whole.
  bool plain = false;         // Without the chat template.
};

// What is evaluated. `chat` may be null.
struct EvalModel {
  models::Model& model;
  const kernels::Backend& backend;
  const models::Tokenizer& tokenizer;
  const models::ChatTemplate* chat;
  std::vector<TokenId> stops;
  kernels::RowSampler sampler;
  int32_t rows_max;  // Of one forward.
};

struct EvalResults {
  std::vector<std::string> tasks;
  std::vector<CandidateResult> candidates;

  // Over all tasks, or those alone whose answers are like nothing else in the context.
  double MeanScore(const CandidateResult& candidate) const;
  double MeanNll(const CandidateResult& candidate, bool unlike_keys) const;
  // Of nll against the full KV, in the mean of those tasks, and its standard error.
  double UnlikeKeysLoss(const CandidateResult& candidate) const;
  double UnlikeKeysLossError(const CandidateResult& candidate) const;
  bool has_unlike_keys() const;
};

// What can be said to be wrong before there is a model. Errors: as RunEval.
Status CheckOptions(const EvalOptions& options);

// `progress`: of so many steps; may be empty. Errors: what the options ask for and cannot be had, naming the option.
StatusOr<EvalResults> RunEval(const EvalModel& subject, const EvalOptions& options,
                              const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace invar::eval
