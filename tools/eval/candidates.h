// What is compared: the full KV, then every compressor at every budget, random dropping as the floor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/compressor.h"

namespace invar::eval {

struct Candidate {
  std::string name;                               // As it was asked for; "full".
  const cache::Compressor* compressor = nullptr;  // Null: the full KV.
  double budget = 1.0;                            // Share of the full KV's bytes.

  bool is_full() const { return compressor == nullptr; }
  bool has_budget() const { return !is_full() && !compressor->traits().keeps_all_tokens; }
};

struct Candidates {
  std::vector<std::unique_ptr<const cache::Compressor>> compressors;
  std::vector<Candidate> rows;  // In the order they are printed.

  // Queries of so many last tokens are shown to any of them: of more than there are, where one is shown those of all.
  int32_t queries_shown() const;
  // Whether one goes by a second pass over the context.
  bool second_pass() const;
};

// Errors: INVALID_ARGUMENT (a compressor there is not, or its settings; a budget
// outside (0, 1]), naming the option.
StatusOr<Candidates> MakeCandidates(std::span<const std::string> compressors, std::span<const double> budgets);

}  // namespace invar::eval
