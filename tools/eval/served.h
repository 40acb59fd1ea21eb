// What serving loses: tasks answered by the engine as it serves them, on full KV, APPROXIMATE by every compressor, and
// LOSSLESS with drafts on the same views. Counts right answers, and LOSSLESS answers whose tokens are not those of full
// KV, of which there must be none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/model.h"
#include "tools/eval/run.h"

namespace invar::eval {

// Answers of one way to serve.
struct ServedAnswers {
  std::vector<int32_t> right = {};  // By kind of task.
  int32_t answers = 0;
  int32_t lost = 0;       // Of those that full KV got right.
  int32_t differing = 0;  // Whose tokens are not those of full KV.
  int64_t drafted_tokens = 0;
  int64_t accepted_tokens = 0;

  int32_t all_right() const;
};

struct ServedRow {
  std::string name;
  bool has_budget = false;
  double budget = 1.0;
  std::string settings = {};
  ServedAnswers approximate = {};
  bool drafts = false;  // Whether it can: some kinds are shown what drafts do not have.
  ServedAnswers lossless = {};
};

struct ServedResults {
  std::vector<std::string> tasks;
  ServedAnswers full;
  ServedAnswers full_in_company;  // The same answers once more, against the first.
  std::vector<ServedRow> rows;
};

// As RunEval, of options' tasks alone: every answer is asked for once on full KV, once APPROXIMATE a candidate,
// once LOSSLESS a candidate and length of options.draft_tokens, and once more on full KV, beside other tasks and in
// another order. Greedy. Errors: as RunEval; what the engine refuses.
StatusOr<ServedResults> RunServed(const EvalModel& model, std::unique_ptr<models::Model> served,
                                  const EvalOptions& options,
                                  const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace invar::eval
