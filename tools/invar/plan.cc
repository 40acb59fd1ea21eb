// invar plan: the placement solver alone. Reads observed overlap depths, or draws them from a made-up workload, and
// says where each policy puts its checkpoints and how many tokens a request runs again for it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/workloads/depths.h"
#include "cache/checkpoint/demand.h"
#include "cache/checkpoint/placement.h"
#include "tools/invar/command.h"
#include "tools/invar/plan_picture.h"

namespace invar::tools {
namespace {

// Beyond any model's context. With kDepthsMax, limits that keep costs in range whatever a file holds:
// 2^24 tokens x 2^21 requests x kWeightOne is kCostMax.
constexpr int32_t kLengthMax = 1 << 24;
constexpr int32_t kDepthsMax = 2'000'000;
// Cells of the solver's table, 4 bytes each: 1 GiB.
constexpr int64_t kCellsMax = int64_t{1} << 28;

struct PlanOptions {
  std::string depths_file;
  std::string workload;
  int32_t count = 10'000;
  uint64_t seed = 1;
  std::string out_file;
  int32_t length = 0;
  int32_t places = -1;
  int32_t grid = 1;
  std::string policy = "optimal-dp";
  std::string plot_file;
  bool json = false;
};

StatusOr<std::vector<int32_t>> ReadDepths(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound(fmt::format("cannot read {}", path));
  std::vector<int32_t> depths;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.pop_back();
    if (line.empty()) continue;
    int32_t depth = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), depth);
    if (error != std::errc() || end != line.data() + line.size() || depth < 0) {
      return InvalidArgument(fmt::format("{}:{}: wanted one depth in tokens, found \"{}\"", path, number, line));
    }
    if (depths.size() == kDepthsMax) {
      return ResourceExhausted(fmt::format("{}: more than {} depths", path, kDepthsMax));
    }
    depths.push_back(depth);
  }
  if (depths.empty()) return InvalidArgument(fmt::format("{}: holds no depths", path));
  return depths;
}

Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return Unavailable(fmt::format("cannot write {}", path));
  return OkStatus();
}

PlacedPolicy PlaceWith(const std::string_view name, const PlanOptions& options, const cache::DemandView demand,
                       const size_t requests) {
  const auto policy = cache::MakePlacement(name);
  const cache::Demand folded = cache::FoldToGrid(demand, options.grid);
  std::vector<int32_t> positions =
      policy->Place({.demand = folded, .length = options.length, .places = options.places});
  const auto cost = static_cast<double>(cache::RecomputeCost(demand, positions));
  return {.name = name,
          .positions = std::move(positions),
          .expected_recompute_tokens = cost / (static_cast<double>(cache::kWeightOne) * static_cast<double>(requests))};
}

// The policy asked for comes first.
std::vector<PlacedPolicy> PlaceWithAll(const PlanOptions& options, const cache::DemandView demand,
                                       const size_t requests) {
  std::vector<PlacedPolicy> placed = {PlaceWith(options.policy, options, demand, requests)};
  placed[0].name = *std::find(cache::PlacementNames().begin(), cache::PlacementNames().end(), options.policy);
  for (const std::string_view name : cache::PlacementNames()) {
    if (name != options.policy) placed.push_back(PlaceWith(name, options, demand, requests));
  }
  return placed;
}

nlohmann::ordered_json ToJson(const PlacedPolicy& policy) {
  return {{"policy", policy.name},
          {"positions", policy.positions},
          {"expected_recompute_tokens", policy.expected_recompute_tokens}};
}

void Print(const PlanOptions& options, const std::vector<PlacedPolicy>& placed, const size_t requests) {
  if (options.json) {
    nlohmann::ordered_json out = ToJson(placed[0]);
    out["length"] = options.length;
    out["places"] = options.places;
    out["requests"] = requests;
    for (size_t i = 1; i < placed.size(); ++i) out["alternatives"].push_back(ToJson(placed[i]));
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("{} requests on a prefix of {} tokens, {} places\n", requests, options.length, options.places);
  fmt::print("{}: {}\n\n", placed[0].name, fmt::join(placed[0].positions, " "));
  fmt::print("{:<18} {:>11} {:>18}\n", "policy", "checkpoints", "recomputed tokens");
  for (const PlacedPolicy& policy : placed) {
    fmt::print("{:<18} {:>11} {:>18.1f}\n", policy.name, policy.positions.size(), policy.expected_recompute_tokens);
  }
}

Status Run(const PlanOptions& options) {
  std::vector<int32_t> depths;
  if (options.workload.empty()) {
    StatusOr<std::vector<int32_t>> read = ReadDepths(options.depths_file);
    if (!read.ok()) return read.status();
    depths = *std::move(read);
  } else {
    depths =
        bench::DrawDepths(*bench::FindDepthWorkload(options.workload), options.length, options.count, options.seed);
  }
  if (!options.out_file.empty()) {
    if (Status s = WriteText(options.out_file, fmt::format("{}\n", fmt::join(depths, "\n"))); !s.ok()) return s;
    if (options.places < 0) return OkStatus();
  }
  const cache::Demand demand = cache::DemandOfDepths(depths, options.length);
  const auto candidates = static_cast<int64_t>(cache::FoldToGrid(demand, options.grid).size());
  if (candidates * std::min<int64_t>(options.places, candidates) > kCellsMax) {
    return ResourceExhausted(fmt::format("{} different depths x {} places: choose a coarser --grid or fewer --places",
                                         candidates, options.places));
  }
  const std::vector<PlacedPolicy> placed = PlaceWithAll(options, demand, depths.size());
  Print(options, placed, depths.size());
  if (options.plot_file.empty()) return OkStatus();
  return WriteText(options.plot_file, DrawPlan(demand, options.length, placed));
}

}  // namespace

int RunPlan(int argc, char** argv) {
  PlanOptions options;
  const std::vector<std::string> policies(cache::PlacementNames().begin(), cache::PlacementNames().end());
  CLI::App app("Where each policy puts the checkpoints of a prefix, and what a request runs again for it",
               "invar plan");
  auto* const depths = app.add_option("--depths", options.depths_file, "one overlap depth in tokens a line");
  auto* const generate = app.add_option("--generate", options.workload, "draw depths from a made-up workload instead")
                             ->check(CLI::IsMember(bench::DepthWorkloadNames()))
                             ->excludes(depths);
  app.add_option("--count", options.count, "how many depths to draw")
      ->check(CLI::Range(1, kDepthsMax))
      ->needs(generate);
  app.add_option("--seed", options.seed, "of the draw")->needs(generate);
  app.add_option("--out", options.out_file, "write the drawn depths here; without --places that is all")
      ->needs(generate);
  app.add_option("--length", options.length, "tokens of the prefix; deeper overlaps count as this deep")
      ->required()
      ->check(CLI::Range(1, kLengthMax));
  app.add_option("--slots,--places", options.places, "checkpoints to place")->check(CLI::Range(0, kLengthMax));
  app.add_option("--grid", options.grid, "place optimal-dp on multiples of this only")
      ->check(CLI::Range(1, kLengthMax));
  app.add_option("--policy", options.policy, "the one to show first")->check(CLI::IsMember(policies));
  app.add_option("--plot", options.plot_file, "write a picture: histogram and positions, SVG");
  app.add_flag("--json", options.json, "one JSON object on stdout");
  try {
    app.parse(argc, argv);
    if (options.depths_file.empty() && options.workload.empty()) {
      throw CLI::RequiredError("one of --depths and --generate");
    }
    if (options.places < 0 && options.out_file.empty()) throw CLI::RequiredError("--slots");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const Status status = Run(options);
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "invar plan: %s\n", status.message().c_str());
  return kExitFailure;
}

}  // namespace invar::tools
