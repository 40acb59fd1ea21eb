// Times of the placement solvers and of the planner, beside what they are held to; and what learned placement is worth
// on independent documents. The best of several runs counts: a shared machine only ever adds time.
//   build/release/bin/dp_bench [--json]

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/split_mix64.h"
#include "bench/micro/best_seconds.h"
#include "bench/workloads/depths.h"
#include "bench/workloads/online_documents.h"
#include "cache/checkpoint/optimal_dp.h"
#include "cache/checkpoint/planner.h"
#include "cache/checkpoint/tree_lagrangian.h"

namespace invar::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Timed {
  std::string name;
  double seconds;
  double limit_seconds;  // What it is held to; 0: nothing.
};

cache::Demand UniformDemand(const int32_t length, const int32_t step) {
  SplitMix64 random(1);
  cache::Demand demand;
  for (int32_t depth = step; depth <= length; depth += step) {
    demand.push_back({depth, static_cast<int64_t>(1 + random.Next() % 1000) * cache::kWeightOne});
  }
  return demand;
}

// As radix trees of chats are: most nodes hang on a recent one, some on any.
std::vector<cache::TreeNode> RandomTree(const int32_t nodes) {
  SplitMix64 random(2);
  std::vector<cache::TreeNode> tree;
  for (int32_t v = 0; v < nodes; ++v) {
    const auto back = static_cast<int32_t>(random.Next() % (random.Next() % 8 == 0 ? 5000 : 8)) + 1;
    const int32_t parent = std::max(-1, v - back);
    const int32_t above = parent < 0 ? 0 : tree[parent].depth;
    tree.push_back({.parent = parent,
                    .depth = above + 1 + static_cast<int32_t>(random.Next() % 600),
                    .weight = static_cast<int64_t>(random.Next() % 20) * cache::kWeightOne});
  }
  return tree;
}

// One request of a class that has learned: plan, then tell what came of it.
Timed PlannerTime() {
  cache::InlinePlanExecutor executor;
  cache::CheckpointPlanner planner({.places = 8}, cache::MakePlacement("optimal-dp"), executor);
  constexpr int32_t kLength = 32'768;
  const cache::ClassKey key = {.size_bucket = cache::SizeBucket(kLength)};
  SplitMix64 random(3);
  for (int i = 0; i < 2000; ++i) {
    if (i % 4 == 0) planner.ObserveEntry(key);
    planner.ObserveOverlap(key, {.length = kLength, .depth = 1 + static_cast<int32_t>(random.Next() % kLength)});
  }
  // A price nothing is worth would end early; this one fills the places, the dearest case.
  const cache::PlanRequest request = {.key = key, .to = kLength, .price = 100 * cache::kWeightOne};
  return {"Planner/request/t32768_places8", BestSeconds(200, [&] { planner.Plan(request); }), 100e-6};
}

std::vector<Timed> TimeAll() {
  std::vector<Timed> out;
  const cache::Demand grid = UniformDemand(32'768, 64);
  const cache::Demand dense = UniformDemand(32'768, 1);
  const std::vector<cache::TreeNode> tree = RandomTree(10'000);
  const auto add = [&](const char* const name, const double limit, const int runs, const std::function<void()>& run) {
    out.push_back({name, BestSeconds(runs, run), limit});
  };
  add("ChainDp/t32768_grid64_m64", 1e-3, 20, [&] { cache::ChainDp(grid, 64).Positions(64); });
  add("ChainDp/t32768_grid1_m64", 60e-3, 5, [&] { cache::ChainDp(dense, 64).Positions(64); });
  const int64_t price = cache::RecomputeCost(grid, {}) / 100;
  add("PlaceAtPrice/t32768_grid64", 0, 100, [&] { cache::PlaceAtPrice(grid, price); });
  add("PlaceOnTreeAtPrice/n10000", 10e-3, 10,
      [&] { cache::PlaceOnTreeAtPrice(tree, int64_t{1000} * cache::kWeightOne); });
  out.push_back(PlannerTime());
  return out;
}

Json OnlineRow(const DepthWorkload& workload, const int32_t places) {
  OnlineOptions options = {.places = places};
  if (workload.name == "fluctuating") options.length_min = options.length_max;
  const auto tokens = [&](const OnlinePolicy policy) { return RunOnline(workload, policy, options).recomputed_tokens; };
  const OnlineResult learned = RunOnline(workload, OnlinePolicy::kLearned, options);
  return {{"workload", workload.name},
          {"places", places},
          {"balanced", tokens(OnlinePolicy::kBalanced)},
          {"end_only", tokens(OnlinePolicy::kEndOnly)},
          {"branch_on_demand", tokens(OnlinePolicy::kBranchOnDemand)},
          {"learned", learned.recomputed_tokens},
          {"hindsight", tokens(OnlinePolicy::kHindsight)},
          {"histogram", cache::AnchorName(learned.anchor)}};
}

void Print(const std::vector<Timed>& times, const std::vector<Json>& online, const bool as_json) {
  if (as_json) {
    Json out;
    for (const Timed& t : times) {
      out["times"].push_back({{"name", t.name}, {"seconds", t.seconds}, {"limit_seconds", t.limit_seconds}});
    }
    out["online_recomputed_tokens"] = online;
    std::printf("%s\n", out.dump(1).c_str());
    return;
  }
  for (const Timed& t : times) {
    std::printf("%-32s %10.1f us  (limit %.0f us)\n", t.name.c_str(), 1e6 * t.seconds, 1e6 * t.limit_seconds);
  }
  for (const Json& row : online) std::printf("%s\n", row.dump().c_str());
}

int Main(const bool as_json) {
  const std::vector<Timed> times = TimeAll();
  std::vector<Json> online;
  for (const DepthWorkload& workload : DepthWorkloads()) {
    for (const int32_t places : {2, 4, 8}) online.push_back(OnlineRow(workload, places));
  }
  Print(times, online, as_json);
  return std::all_of(times.begin(), times.end(),
                     [](const Timed& t) { return t.limit_seconds == 0 || t.seconds <= t.limit_seconds; })
             ? 0
             : 1;
}

}  // namespace
}  // namespace invar::bench

int main(const int argc, char** argv) { return invar::bench::Main(argc > 1 && std::strcmp(argv[1], "--json") == 0); }
