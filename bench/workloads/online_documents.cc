// All policies see the same documents and requests: the draws do not depend on what a policy does.
#include "bench/workloads/online_documents.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "cache/checkpoint/optimal_dp.h"
#include "cache/checkpoint/placement.h"
#include "cache/checkpoint/planner.h"

namespace invar::bench {
namespace {

using cache::Demand;
using Depths = std::vector<int32_t>;

struct Document {
  int32_t length = 0;
  Depths later;  // Overlap of each later request.
};

std::vector<Document> Draw(const DepthWorkload& workload, const OnlineOptions& options) {
  SplitMix64 random(options.seed);
  std::vector<Document> documents(options.documents);
  for (Document& document : documents) {
    const auto spread = static_cast<uint64_t>(options.length_max - options.length_min + 1);
    document.length = options.length_min + static_cast<int32_t>(random.Next() % spread);
    for (int32_t i = 0; i < options.requests; ++i) document.later.push_back(workload.draw(random, document.length));
  }
  return documents;
}

int64_t Recomputed(const Depths& positions, const int32_t depth) {
  return cache::RecomputeCost(Demand{{depth, 1}}, positions);
}

// Other servers keep states at block ends only. Rounding down helps them here: near matches then share a checkpoint.
int32_t BlockEnd(const int32_t depth) { return depth - depth % cache::kGridTokens; }

// Checkpoints by last use, newest first.
int64_t OnDemand(const Document& document, const int32_t places) {
  Depths by_use;
  int64_t tokens = 0;
  for (const int32_t depth : document.later) {
    auto best = by_use.end();
    for (auto c = by_use.begin(); c != by_use.end(); ++c) {
      if (*c <= depth && (best == by_use.end() || *c > *best)) best = c;
    }
    tokens += best == by_use.end() ? depth : depth - *best;
    if (best != by_use.end()) std::rotate(by_use.begin(), best, best + 1);
    const int32_t block_end = BlockEnd(depth);
    if (block_end == 0 || (!by_use.empty() && by_use.front() == block_end)) continue;
    by_use.insert(by_use.begin(), block_end);
    if (static_cast<int32_t>(by_use.size()) > places) by_use.pop_back();
  }
  return tokens;
}

class Learned {
 public:
  explicit Learned(const int32_t places)
      : planner_({.places = places, .merge_tokens = 1}, cache::MakePlacement("optimal-dp"), executor_) {}

  int64_t Serve(const Document& document) {
    const cache::ClassKey key = {.size_bucket = cache::SizeBucket(document.length)};
    request_ = {.key = key, .to = document.length};
    Depths positions;
    for (const cache::Candidate& candidate : planner_.Plan(request_)) positions.push_back(candidate.at);
    planner_.ObserveEntry(key);
    int64_t tokens = 0;
    for (const int32_t depth : document.later) {
      tokens += Recomputed(positions, depth);
      planner_.ObserveOverlap(key, {.length = document.length, .depth = depth});
    }
    return tokens;
  }

  cache::Anchor anchor() { return planner_.Explain(request_).anchor; }

 private:
  cache::InlinePlanExecutor executor_;
  cache::CheckpointPlanner planner_;
  cache::PlanRequest request_;
};

Depths Balanced(const int32_t length, const int32_t places) {
  return cache::MakePlacement("balanced")->Place({.length = length, .places = places});
}

int64_t Sum(const Document& document, const Depths& positions) {
  int64_t tokens = 0;
  for (const int32_t depth : document.later) tokens += Recomputed(positions, depth);
  return tokens;
}

int64_t Hindsight(const Document& document, const int32_t places) {
  const cache::ChainDp best(cache::DemandOfDepths(document.later, document.length), places);
  return Sum(document, best.Positions(best.places()));
}

}  // namespace

OnlineResult RunOnline(const DepthWorkload& workload, const OnlinePolicy policy, const OnlineOptions& options) {
  Learned learned(options.places);
  int64_t tokens = 0;
  for (const Document& document : Draw(workload, options)) {
    switch (policy) {
      case OnlinePolicy::kBalanced:
        tokens += Sum(document, Balanced(document.length, options.places));
        break;
      case OnlinePolicy::kEndOnly:
        tokens += Sum(document, {BlockEnd(document.length)});
        break;
      case OnlinePolicy::kBranchOnDemand:
        tokens += OnDemand(document, options.places);
        break;
      case OnlinePolicy::kLearned:
        tokens += learned.Serve(document);
        break;
      case OnlinePolicy::kHindsight:
        tokens += Hindsight(document, options.places);
        break;
    }
  }
  const double requests = static_cast<double>(options.documents) * options.requests;
  return {.recomputed_tokens = static_cast<double>(tokens) / requests,
          .anchor = policy == OnlinePolicy::kLearned ? learned.anchor() : cache::Anchor::kStart};
}

}  // namespace invar::bench
