// What all reports of evaluations say alike: of what they are, and which view a row is of.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/eval/report.h"

namespace invar::eval {

// The beginning of a JSON report.
inline nlohmann::ordered_json HeadOf(const EvalHeading& heading, const EvalOptions& options) {
  return {{"model", heading.model},
          {"fingerprint", heading.fingerprint},
          {"numerics", heading.numerics_id},
          {"date", heading.date},
          {"seed", options.seed},
          {"context_tokens", options.context_tokens},
          {"samples", options.samples}};
}

// The beginning of a row of it. `row`: CandidateResult or ServedRow, here and below.
template <typename Row>
nlohmann::ordered_json HeadOf(const Row& row) {
  nlohmann::ordered_json json = {{"compressor", row.name}, {"settings", row.settings}};
  json["budget"] = row.has_budget ? nlohmann::ordered_json(row.budget) : nlohmann::ordered_json(nullptr);
  return json;
}

// For tables.
template <typename Row>
std::string BudgetOf(const Row& row) {
  return row.has_budget ? fmt::format("{:g}", row.budget) : "-";
}

template <typename Rows>
size_t NameWidth(const Rows& rows) {
  size_t width = 10;
  for (const auto& row : rows) width = std::max(width, row.name.size());
  return width;
}

}  // namespace invar::eval
