// See candidates.h.
#include "tools/eval/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/compressed/query_log.h"

namespace invar::eval {
namespace {

constexpr std::string_view kFloor = "random_drop";

}  // namespace

StatusOr<Candidates> MakeCandidates(const std::span<const std::string> compressors,
                                    const std::span<const double> budgets) {
  for (const double budget : budgets) {
    if (!(budget > 0.0 && budget <= 1.0)) {
      return InvalidArgument(
          fmt::format("--budget: wanted shares of the full KV above 0 and at most 1, found {}; a half is 0.5", budget));
    }
  }
  std::vector<std::string> names(compressors.begin(), compressors.end());
  std::erase(names, kFloor);
  names.emplace_back(kFloor);
  Candidates candidates;
  candidates.rows.push_back({.name = "full"});
  for (const std::string& name : names) {
    StatusOr<std::unique_ptr<cache::Compressor>> made = cache::MakeCompressor(name);
    if (!made.ok()) return InvalidArgument("--compressor: " + made.status().message());
    Candidate candidate{.name = name, .compressor = made->get()};
    candidates.compressors.push_back(*std::move(made));
    if (!candidate.has_budget()) {
      candidates.rows.push_back(candidate);
      continue;
    }
    for (const double budget : budgets) {
      candidate.budget = budget;
      candidates.rows.push_back(candidate);
    }
  }
  return candidates;
}

int32_t Candidates::queries_shown() const {
  int32_t window = 0;
  for (const auto& compressor : compressors) {
    if (compressor->traits().spread_queries > 0) return std::numeric_limits<int32_t>::max();
    window = std::max(window, engine::QueriesShown(compressor->traits()));
  }
  return window;
}

bool Candidates::second_pass() const {
  return std::ranges::any_of(compressors, [](const auto& compressor) { return compressor->traits().second_pass; });
}

}  // namespace invar::eval
