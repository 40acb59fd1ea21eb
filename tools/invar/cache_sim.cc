// invar cache-sim: replays a trace of requests through the cache manager under different policies and budgets, and says
// which share of the prompt tokens need not have been run.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/numerics.h"
#include "tools/cache_sim/policies.h"
#include "tools/cache_sim/replay.h"
#include "tools/cache_sim/trace.h"
#include "tools/invar/command.h"
#include "tools/invar/progress_bar.h"

namespace invar::tools {
namespace {

constexpr double kBytesPerGb = 1e9;
constexpr double kBudgetGbMax = 1e6;

struct CacheSimOptions {
  std::string trace;
  std::vector<std::string> policies;
  std::vector<std::string> budgets_gb;
  int64_t kv_bytes_per_token = 12'288;  // The shape of qwen3.5-0.8b: 6 attention layers x 2 heads x 256 x K, V x bf16,
  int64_t checkpoint_bytes = 19'537'920;  // 18 recurrent layers x (16 x 128 x 128 fp32 + 6144 x 3 bf16).
  bool json = false;
};

struct Budget {
  std::optional<double> gb;  // None: no limit.
  int64_t bytes() const { return gb.has_value() ? std::llround(*gb * kBytesPerGb) : cache_sim::kNoLimitBytes; }
};

std::optional<Budget> ParseBudget(const std::string& text) {
  if (text == "inf") return Budget{};
  char* end = nullptr;
  const double gb = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(gb > 0 && gb <= kBudgetGbMax)) return std::nullopt;
  return Budget{gb};
}

struct Row {
  std::string policy;
  Budget budget;
  cache_sim::ReplayResult result;
  double seconds = 0;
};

int64_t CheckpointsMade(const cache::PlacementReport& report) {
  int64_t made = 0;
  for (const int64_t of_kind : report.checkpoints_made) made += of_kind;
  return made;
}

nlohmann::ordered_json ToJson(const Row& row) {
  const cache_sim::ReplayResult& result = row.result;
  nlohmann::ordered_json out = {{"policy", row.policy}, {"budget_gb", "inf"}};
  if (row.budget.gb.has_value()) out["budget_gb"] = *row.budget.gb;
  out["token_hit_rate"] = result.TokenHitRate();
  out["checkpoints_made"] = CheckpointsMade(result.report);
  out["dead_kv_bytes"] = result.dead_kv_bytes_max;
  out["requests"] = result.requests;
  out["requests_too_large"] = result.requests_too_large;
  out["input_tokens"] = result.input_tokens;
  out["kv_match_tokens"] = result.kv_match_tokens;
  out["state_match_tokens"] = result.state_match_tokens;
  out["checkpoints_evicted"] = result.report.checkpoints_evicted;
  out["eviction_passes"] = result.report.eviction_passes;
  out["eviction_order"] = result.report.eviction_order;
  out["checkpoint_price_tokens"] = result.report.checkpoint_price_tokens;
  out["seconds"] = row.seconds;
  return out;
}

void PrintTable(const std::vector<Row>& rows) {
  std::printf("%-18s %10s %12s %12s %12s %8s\n", "policy", "budget GB", "hit rate %", "checkpoints", "dead KV B", "s");
  for (const Row& row : rows) {
    char budget[32] = "inf";
    if (row.budget.gb.has_value()) std::snprintf(budget, sizeof budget, "%g", *row.budget.gb);
    std::printf("%-18s %10s %12.2f %12lld %12lld %8.1f\n", row.policy.c_str(), budget, row.result.TokenHitRate(),
                static_cast<long long>(CheckpointsMade(row.result.report)),
                static_cast<long long>(row.result.dead_kv_bytes_max), row.seconds);
  }
}

Row RunOne(const cache_sim::Trace& trace, const CacheSimOptions& options, const std::string& policy,
           const Budget& budget) {
  cache::CacheOptions cache = *cache_sim::OptionsOf(policy);
  cache.shape = {.page_bytes = options.kv_bytes_per_token * kernels::kPageTokens,
                 .state_bytes = options.checkpoint_bytes};
  cache.slots_without_bytes = 1;
  cache.budget_bytes = budget.bytes();
  cache.backing = cache::Backing::kNone;
  const auto begin = std::chrono::steady_clock::now();
  ProgressBar bar(policy);
  Row row{.policy = policy, .budget = budget, .result = {}};
  row.result =
      cache_sim::Replay(trace, cache, [&](const int64_t done) { bar.Show(done, static_cast<int64_t>(trace.size())); });
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return row;
}

}  // namespace

int RunCacheSim(int argc, char** argv) {
  CacheSimOptions options;
  CLI::App app("Replays a trace of requests through the prefix cache, without a model", "invar cache-sim");
  app.add_option("--trace", options.trace, "JSON lines: timestamp, input_length, output_length, hash_ids")->required();
  const auto names = cache_sim::PolicyNames();
  app.add_option("--policy", options.policies, "what to compare; may be given several times")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())));
  app.add_option("--budget-gb", options.budgets_gb, "budgets in GB (10^9 bytes), separated by commas; inf: no limit")
      ->required()
      ->delimiter(',');
  app.add_option("--kv-bytes-per-token", options.kv_bytes_per_token, "attention KV of a token")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--checkpoint-bytes", options.checkpoint_bytes, "recurrent state; 0: the model has none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  app.add_flag("--json", options.json, "one JSON object on stdout");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  std::vector<Budget> budgets;
  for (const std::string& text : options.budgets_gb) {
    const std::optional<Budget> budget = ParseBudget(text);
    if (!budget.has_value()) {
      std::fprintf(stderr, "invar cache-sim: --budget-gb wants numbers above 0 (at most %g) or inf, not '%s'\n",
                   kBudgetGbMax, text.c_str());
      return kExitUsage;
    }
    budgets.push_back(*budget);
  }
  const StatusOr<cache_sim::Trace> trace = cache_sim::ReadTraceFile(options.trace);
  if (!trace.ok()) {
    std::fprintf(stderr, "invar cache-sim: %s\n", trace.status().message().c_str());
    return kExitFailure;
  }
  std::vector<Row> rows;
  for (const std::string& policy : options.policies) {
    for (const Budget& budget : budgets) rows.push_back(RunOne(*trace, options, policy, budget));
  }
  if (options.json) {
    nlohmann::ordered_json out = {{"runs", nlohmann::ordered_json::array()}};
    for (const Row& row : rows) out["runs"].push_back(ToJson(row));
    std::printf("%s\n", out.dump().c_str());
  } else {
    PrintTable(rows);
  }
  return kExitOk;
}

}  // namespace invar::tools
