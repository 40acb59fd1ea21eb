// Positions are absolute at the border and depths from the segment's start where demand is meant.
#include "cache/checkpoint/planner.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace invar::cache {

struct CheckpointPlanner::Class {
  ClassKey key;
  int64_t serial = 0;  // Tells a class from a forgotten one of the same key.
  DecayClock clock;
  int64_t entries = 0;  // Weight of entries; overlaps weigh what any of the histograms does.
  PerAnchor<OverlapHistogram> histograms;
  std::vector<Overlap> since_renewal;  // At most kBackTestMax.
  std::shared_ptr<const ClassPrior> prior;
  bool renewing = false;
  int64_t price = 0;  // Of the last request, for the next back-test.
};

struct CheckpointPlanner::Finished {
  ClassKey key;
  int64_t serial = 0;
  std::shared_ptr<const ClassPrior> prior;
};

struct CheckpointPlanner::Mailbox {
  Mutex mu;
  std::vector<Finished> finished GUARDED_BY(mu);
};

namespace {

// Overlaps kept for the back-test, should a job of the class take long; what comes beyond only moves the histograms.
constexpr int32_t kBackTestMax = 128;

// Entries added to those seen: one prefix that was come back to once says little about the next one.
constexpr int64_t kEntriesPrior = 1;

bool IsNear(const int32_t a, const int32_t b, const int32_t tokens) { return std::abs(a - b) < tokens; }

bool Comes(const Candidate& a, const Candidate& b) { return a.at < b.at; }

// Whether a candidate at `at` would be closer than `tokens` to one of `kept` (ascending).
bool IsCrowded(const std::vector<Candidate>& kept, const int32_t at, const int32_t tokens) {
  const auto next = std::lower_bound(kept.begin(), kept.end(), Candidate{.at = at}, Comes);
  return (next != kept.end() && IsNear(next->at, at, tokens)) ||
         (next != kept.begin() && IsNear(std::prev(next)->at, at, tokens));
}

void Insert(std::vector<Candidate>& kept, const Candidate& candidate) {
  kept.insert(std::lower_bound(kept.begin(), kept.end(), candidate, Comes), candidate);
}

// Each candidate's saving: the requests between it and the next one, over the tokens to the one before it.
void FillSavings(std::vector<Candidate>& candidates, const DemandView demand, const PlanRequest& request) {
  auto point = demand.begin();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const int32_t begin = candidates[i].at - request.from;
    const int32_t end = i + 1 < candidates.size() ? candidates[i + 1].at - request.from : INT32_MAX;
    int64_t weight = 0;
    while (point != demand.end() && point->depth < begin) ++point;
    for (; point != demand.end() && point->depth < end; ++point) weight += point->weight;
    const int32_t before = i == 0 ? request.resume : candidates[i - 1].at;
    candidates[i].saving = weight * (candidates[i].at - before);
  }
}

// Depths of those candidates that lie in the private segment.
std::vector<int32_t> DepthsIn(const std::span<const Candidate> candidates, const PlanRequest& request) {
  std::vector<int32_t> depths;
  for (const Candidate& candidate : candidates) {
    if (candidate.at > request.from && candidate.at <= request.to) depths.push_back(candidate.at - request.from);
  }
  return depths;
}

// Weights of the clock's present unit into weights where the newest observation is kWeightOne.
int64_t Normalized(const int64_t weight, const DecayClock& clock) {
  return static_cast<int64_t>(static_cast<__int128>(weight) * kWeightOne / clock.one());
}

}  // namespace

int32_t SizeBucket(const int32_t tokens) {
  Check(tokens >= 1, "a segment has tokens", tokens);
  return std::bit_width(static_cast<uint32_t>(tokens)) - 1;
}

int Importance(const CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kBranch:
      return 0;
    case CheckpointKind::kHint:
      return 1;
    case CheckpointKind::kPromptEnd:
      return 2;
    case CheckpointKind::kEnd:
      return 3;
    case CheckpointKind::kPreempted:
    case CheckpointKind::kBrought:
      return 4;
    case CheckpointKind::kPlanned:
      return 5;
  }
  Check(false, "a kind is one of seven", static_cast<int>(kind));
  return 0;
}

CheckpointPlanner::CheckpointPlanner(const PlannerOptions& options, std::shared_ptr<const PlacementPolicy> policy,
                                     PlanExecutor& executor)
    : options_(options),
      policy_(std::move(policy)),
      traits_(policy_->traits()),
      executor_(executor),
      mailbox_(std::make_shared<Mailbox>()) {
  Check(options.places >= 0 && options.merge_tokens >= 1 && options.classes_max >= 1 &&
            options.observations_first >= 1 && options.observations_max >= 1 &&
            options.observations_first <= kBackTestMax && options.observations_max <= kBackTestMax,
        "planner options are in range");
}

CheckpointPlanner::~CheckpointPlanner() = default;

CheckpointPlanner::Class& CheckpointPlanner::ClassOf(const ClassKey& key) {
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    classes_.splice(classes_.begin(), classes_, found->second);
    return classes_.front();
  }
  if (static_cast<int32_t>(classes_.size()) == options_.classes_max) {
    by_key_.erase(classes_.back().key);
    classes_.pop_back();
    ++counts_.classes_forgotten;
  }
  classes_.emplace_front();
  classes_.front().key = key;
  classes_.front().serial = next_serial_++;
  by_key_.emplace(key, classes_.begin());
  return classes_.front();
}

const CheckpointPlanner::Class* CheckpointPlanner::FindClass(const ClassKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &*found->second;
}

void CheckpointPlanner::Age(Class& of) {
  if (!of.clock.Tick()) return;
  of.entries >>= DecayClock::kRescaleBits;
  for (OverlapHistogram& histogram : of.histograms) histogram.Rescale();
}

void CheckpointPlanner::ObserveEntry(const ClassKey& key) {
  TakeFinished();
  Class& of = ClassOf(key);
  Age(of);
  of.entries += of.clock.one();
  ++counts_.entries;
}

void CheckpointPlanner::ObserveOverlap(const ClassKey& key, const Overlap& overlap) {
  TakeFinished();
  if (!traits_.reads_demand || overlap.depth < 1 || overlap.depth > overlap.length) return;
  Class& of = ClassOf(key);
  Age(of);
  for (const Anchor anchor : kAnchors) {
    of.histograms[static_cast<size_t>(anchor)].Add(CellOf(anchor, overlap), of.clock.one());
  }
  if (static_cast<int32_t>(of.since_renewal.size()) < kBackTestMax) of.since_renewal.push_back(overlap);
  ++counts_.overlaps;
  if (of.renewing) return;
  const auto seen = static_cast<int32_t>(of.since_renewal.size());
  if (of.prior == nullptr) {
    if (seen >= options_.observations_first) Renew(of);
    return;
  }
  const OverlapHistogram& followed = of.histograms[static_cast<size_t>(of.prior->anchor)];
  if (seen >= options_.observations_max || followed.Drift() > options_.drift_max) Renew(of);
}

// The job sees copies only, and its answer waits in the mailbox until the engine thread comes by.
void CheckpointPlanner::Renew(Class& of) {
  auto next = std::make_shared<ClassPrior>();
  for (const Anchor anchor : kAnchors) {
    OverlapHistogram& histogram = of.histograms[static_cast<size_t>(anchor)];
    histogram.MarkPlanned();
    for (const CellWeight& cell : histogram.cells()) {
      const int64_t weight = Normalized(cell.weight, of.clock);
      if (weight > 0) next->cells[static_cast<size_t>(anchor)].push_back({cell.cell, weight});
    }
  }
  const int64_t entries = of.entries + kEntriesPrior * of.clock.one();
  next->rate = static_cast<int64_t>(static_cast<__int128>(of.histograms[0].total()) * kWeightOne / entries);
  of.renewing = true;
  ++counts_.renewals;
  executor_.Run([mailbox = mailbox_, policy = policy_, options = options_, price = of.price, key = of.key,
                 serial = of.serial, last = of.prior, overlaps = std::exchange(of.since_renewal, {}),
                 next = std::move(next)] {
    const PlacementProblem problem = {
        .places = options.places, .price = price, .restore_tokens = options.restore_tokens};
    BackTest(last.get(), overlaps, *policy, problem, *next);
    const MutexLock lock(mailbox->mu);
    mailbox->finished.push_back({.key = key, .serial = serial, .prior = next});
  });
}

void CheckpointPlanner::TakeFinished() {
  std::vector<Finished> finished;
  {
    const MutexLock lock(mailbox_->mu);
    finished.swap(mailbox_->finished);
  }
  for (Finished& done : finished) {
    const auto found = by_key_.find(done.key);
    if (found == by_key_.end() || found->second->serial != done.serial) continue;  // Forgotten meanwhile.
    found->second->prior = std::move(done.prior);
    found->second->renewing = false;
  }
}

bool CheckpointPlanner::Uses(const CheckpointKind kind) const {
  switch (kind) {
    case CheckpointKind::kBranch:
      return traits_.at_branch;
    case CheckpointKind::kHint:
      return traits_.at_hints;
    case CheckpointKind::kPromptEnd:
    case CheckpointKind::kEnd:
      return traits_.at_end;
    case CheckpointKind::kPlanned:
    case CheckpointKind::kPreempted:
    case CheckpointKind::kBrought:
      return true;
  }
  Check(false, "a kind is one of seven", static_cast<int>(kind));
  return false;
}

// By importance, then by depth; each stays unless a more important one is near.
std::vector<Candidate> CheckpointPlanner::MergedFixed(const PlanRequest& request) const {
  std::vector<CheckpointPlace> fixed;
  for (const CheckpointPlace& candidate : request.fixed) {
    const bool passes = candidate.at - request.resume >= options_.resume_spacing &&
                        candidate.at <= std::max(request.to, request.run_end);
    if (passes && Uses(candidate.kind)) fixed.push_back(candidate);
  }
  std::sort(fixed.begin(), fixed.end(), [](const CheckpointPlace& a, const CheckpointPlace& b) {
    return std::pair(Importance(a.kind), a.at) < std::pair(Importance(b.kind), b.at);
  });
  std::vector<Candidate> kept;
  for (const CheckpointPlace& candidate : fixed) {
    if (IsCrowded(kept, candidate.at, options_.merge_tokens)) continue;
    Insert(kept, {.at = candidate.at, .kind = candidate.kind});
  }
  return kept;
}

// Depths from the segment's start that `policy` would place, `fixed` being there anyway. A policy that does not learn
// means the whole prompt by its length; what lies before the segment is not placed again.
std::vector<int32_t> CheckpointPlanner::PlannedDepths(const PlanRequest& request, const PlacementPolicy& policy,
                                                      const DemandView demand, const std::span<const Candidate> fixed,
                                                      const int32_t places) const {
  if (request.to == request.from) return {};
  if (policy.traits().reads_demand) {
    const std::vector<int32_t> depths = DepthsIn(fixed, request);
    return policy.Place({.demand = demand,
                         .length = request.to - request.from,
                         .places = places,
                         .price = request.price,
                         .fixed = depths,
                         .restore_tokens = options_.restore_tokens});
  }
  std::vector<int32_t> planned;
  for (const int32_t position : policy.Place({.length = request.to, .places = places})) {
    if (position > request.from) planned.push_back(position - request.from);
  }
  return planned;
}

std::vector<Candidate> CheckpointPlanner::Choose(const PlanRequest& request, const DemandView demand) const {
  Check(request.resume <= request.from && request.from <= request.to, "resume, from, to ascend", request.resume,
        request.from, request.to);
  std::vector<Candidate> chosen = MergedFixed(request);
  for (const int32_t depth : PlannedDepths(request, *policy_, demand, chosen, options_.places)) {
    const int32_t at = request.from + depth;
    if (at - request.resume < options_.resume_spacing) continue;
    if (!IsCrowded(chosen, at, options_.merge_tokens)) Insert(chosen, {.at = at});
  }
  FillSavings(chosen, demand, request);
  return chosen;
}

std::vector<Candidate> CheckpointPlanner::Plan(const PlanRequest& request) {
  TakeFinished();
  Demand demand;
  if (traits_.reads_demand && request.key.has_value()) {
    Class& of = ClassOf(*request.key);
    of.price = request.price;
    demand = DemandOf(of, request);
  }
  std::vector<Candidate> chosen = Choose(request, demand);
  ++counts_.plans;
  for (const Candidate& candidate : chosen) {
    counts_.planned_checkpoints += candidate.kind == CheckpointKind::kPlanned ? 1 : 0;
  }
  return chosen;
}

PlanExplanation CheckpointPlanner::Explain(const PlanRequest& request) {
  TakeFinished();
  PlanExplanation out;
  out.price = request.price;
  const Class* const of = request.key.has_value() ? FindClass(*request.key) : nullptr;
  out.renewing = of != nullptr && of->renewing;
  if (of != nullptr && of->prior != nullptr) {
    out.learned = true;
    out.anchor = of->prior->anchor;
    out.back_test = of->prior->back_test;
    out.rate = of->prior->rate;
    out.demand = DemandOf(*of, request);
  }
  out.chosen = Choose(request, out.demand);
  out.cost = RecomputeCost(out.demand, DepthsIn(out.chosen, request), options_.restore_tokens);
  const auto places = static_cast<int32_t>(std::count_if(
      out.chosen.begin(), out.chosen.end(), [](const Candidate& c) { return c.kind == CheckpointKind::kPlanned; }));
  const std::vector<Candidate> fixed = MergedFixed(request);
  out.cost_of_fixed = RecomputeCost(out.demand, DepthsIn(fixed, request), options_.restore_tokens);
  for (const std::string_view name : PlacementNames()) {
    std::vector<int32_t> depths = DepthsIn(fixed, request);
    const std::vector<int32_t> planned = PlannedDepths(request, *MakePlacement(name), out.demand, fixed, places);
    depths.insert(depths.end(), planned.begin(), planned.end());
    std::sort(depths.begin(), depths.end());
    out.alternatives.push_back({.policy = name,
                                .checkpoints = static_cast<int32_t>(planned.size()),
                                .cost = RecomputeCost(out.demand, depths, options_.restore_tokens)});
  }
  return out;
}

Demand CheckpointPlanner::DemandOf(const Class& of, const PlanRequest& request) {
  if (of.prior == nullptr || request.to == request.from) return {};
  return DemandFor(*of.prior, of.prior->anchor, request.to - request.from);
}

PlannerCounts CheckpointPlanner::counts() const {
  PlannerCounts counts = counts_;
  counts.classes = static_cast<int64_t>(classes_.size());
  return counts;
}

void CheckpointPlanner::CheckIntegrity() const {
  Check(classes_.size() == by_key_.size() && static_cast<int32_t>(classes_.size()) <= options_.classes_max,
        "every class has one key, within the limit", classes_.size(), by_key_.size());
  for (auto of = classes_.begin(); of != classes_.end(); ++of) {
    const auto found = by_key_.find(of->key);
    Check(found != by_key_.end() && found->second == of, "a class is found by its key");
    Check(static_cast<int32_t>(of->since_renewal.size()) <= kBackTestMax, "overlaps kept are limited",
          of->since_renewal.size());
    for (const OverlapHistogram& histogram : of->histograms) histogram.CheckIntegrity();
  }
}

}  // namespace invar::cache
