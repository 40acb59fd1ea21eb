// What an evaluation found, as plain numbers. Likelihoods are negative log-likelihoods in nats a token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/eval/candidates.h"
#include "tools/eval/spread_ratio.h"

namespace invar::eval {

// One kind of task.
struct TaskResult {
  int32_t samples = 0;
  double score_sum = 0.0;
  int64_t tokens = 0;     // Of right answers.
  double nll_sum = 0.0;   // Of them, taught.
  SpreadRatio loss = {};  // Of nll against the full KV, a token.

  double score() const { return samples > 0 ? score_sum / samples : 0.0; }
  double nll() const { return tokens > 0 ? nll_sum / static_cast<double>(tokens) : 0.0; }
};

// Text behind a compressed prefix of it.
struct TextResult {
  int64_t tokens = 0;
  double nll_sum = 0.0;
  SpreadRatio loss = {};       // Of nll against the full KV, a token.
  SpreadRatio agreement = {};  // Tokens whose most likely one was that of the full KV.

  double nll() const { return tokens > 0 ? nll_sum / static_cast<double>(tokens) : 0.0; }
};

// Rounds of drafts of one length.
struct DraftResult {
  int32_t draft_tokens = 0;
  int64_t rounds = 0;
  int64_t judged = 0;  // Draft tokens up to the first wrong one.
  int64_t accepted = 0;
  SpreadRatio acceptance = {};  // Per token: how often the next one was right, those before it being so.

  // The verifier's own token included.
  double tokens_a_round() const {
    return rounds > 0 ? 1.0 + static_cast<double>(accepted) / static_cast<double>(rounds) : 0.0;
  }
};

struct CandidateResult {
  std::string name;
  bool has_budget = false;
  double budget = 1.0;
  std::string settings = {};  // Canonical text of the compressor; empty for the full KV.
  int32_t views = 0;
  double bytes_share_sum = 0.0;
  std::vector<TaskResult> tasks = {};  // In the order of the evaluation's.
  TextResult text = {};
  std::vector<DraftResult> drafts = {};

  double bytes_share() const { return views > 0 ? bytes_share_sum / views : 0.0; }
};

}  // namespace invar::eval
