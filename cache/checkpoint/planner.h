// CheckpointPlanner: at which positions a request that is about to run should leave its state. It is asked before the
// state passes, since a state passes a position once.
// Two sources meet here. Fixed candidates come with the request: the branch where its attention match went deeper than
// its state match, the caller's hints, the end of a stable prompt, the ends. Planned ones come from what the request's
// class taught (class_prior.h): the exact placement over the private segment, the part of the prompt nobody shared so
// far, at a price for each checkpoint. A class that taught nothing plans nothing: even spacing by default loses to
// nothing at all where memory is short. What a class knows is renewed when its histogram has drifted or enough was
// seen, as a job that may run on another thread; requests meanwhile follow the prior they find. Threads: engine thread
// only, but for the jobs.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "cache/checkpoint/class_prior.h"
#include "cache/checkpoint/overlap_histogram.h"
#include "cache/checkpoint/placement.h"
#include "cache/prefix_match.h"
#include "cache/tree/class_key.h"

namespace invar::cache {

// Segments whose lengths agree within a factor of two share a bucket. Requires: tokens >= 1.
int32_t SizeBucket(int32_t tokens);

// Of two checkpoints closer than `merge_tokens` the more important kind stays: branch (0), then hint, end of the
// prompt, end, preempted, planned. Template boundaries come as hints.
int Importance(CheckpointKind kind);

struct Candidate {
  int32_t at = 0;  // After so many tokens.
  CheckpointKind kind = CheckpointKind::kPlanned;
  int64_t saving = 0;  // Tokens expected to be saved by it alone, over the life of the prefix, x kWeightOne.
};

struct PlanRequest {
  std::optional<ClassKey> key;               // None: nothing that was learned applies.
  int32_t resume = 0;                        // State is known here; checkpoints are possible after it.
  int32_t from = 0;                          // End of what is shared: the private segment begins. At least `resume`.
  int32_t to = 0;                            // End of the private segment. At least `from`.
  int32_t run_end = 0;                       // Fixed candidates may lie up to here, where that is beyond `to`.
  std::span<const CheckpointPlace> fixed{};  // Any order; those that cannot be are left out.
  int64_t price = 0;                         // What a planned checkpoint must save: tokens x kWeightOne.
};

struct PlannerOptions {
  int32_t places = 8;              // Most planned checkpoints a request.
  int32_t merge_tokens = 64;       // Checkpoints closer than this are one: running the tokens is cheaper than a state.
  int32_t resume_spacing = 8;      // A checkpoint closer than this behind the one resumed from is not made.
  int32_t restore_tokens = 0;      // Work of a restore, in tokens of prefill.
  int32_t drift_max = 100;         // Renew a prior whose histogram moved by more, in thousandths of its mass...
  int32_t observations_max = 64;   // ... or after this many overlaps; at most 128.
  int32_t observations_first = 4;  // Overlaps before a class plans at all.
  int32_t classes_max = 1024;      // The least recently used class is forgotten beyond it.
};

// Runs jobs, each once or, when it ends, not at all; in any order and on any thread. Requires: outlives the planner,
// not its jobs.
class PlanExecutor {
 public:
  virtual ~PlanExecutor() = default;
  virtual void Run(std::function<void()> job) = 0;
};

// At once, on the caller's thread: for simulations and tests.
class InlinePlanExecutor final : public PlanExecutor {
 public:
  void Run(const std::function<void()> job) override { job(); }
};

// Why a plan is as it is.
struct PlanExplanation {
  struct Alternative {
    std::string_view policy;
    int32_t checkpoints = 0;  // It would place.
    int64_t cost = 0;         // Without their price.
  };
  bool renewing = false;           // A newer prior is being made: the next answer may differ.
  bool learned = false;            // Whether the class has a prior; without one the numbers below are 0.
  Anchor anchor = Anchor::kStart;  // The histogram in use.
  PerAnchor<int64_t> back_test{};  // What following each would have cost.
  int64_t rate = 0;                // Expected later requests a prefix, x kWeightOne.
  Demand demand;                   // Depths from the segment's start.
  int64_t price = 0;
  int64_t cost_of_fixed = 0;      // Expected tokens run again with the fixed ones alone, x kWeightOne.
  std::vector<Candidate> chosen;  // As Plan() gives them.
  int64_t cost = 0;               // Expected tokens run again with them, x kWeightOne.
  std::vector<Alternative>
      alternatives;  // Every registered policy with as many places as were planned; some place more.
};

struct PlannerCounts {
  int64_t classes = 0;
  int64_t classes_forgotten = 0;
  int64_t entries = 0;
  int64_t overlaps = 0;
  int64_t plans = 0;
  int64_t planned_checkpoints = 0;
  int64_t renewals = 0;  // Priors renewed.
};

class CheckpointPlanner {
 public:
  CheckpointPlanner(const PlannerOptions& options, std::shared_ptr<const PlacementPolicy> policy,
                    PlanExecutor& executor);
  ~CheckpointPlanner();

  // A prefix of the class entered the cache.
  // Effects: ages the class by one tick. Cost: a map lookup.
  void ObserveEntry(const ClassKey& key);

  // A later request shared `overlap.depth` tokens of such a prefix's private segment. Matches that end on the shared
  // trunk are the trunk's own affair and must not be reported here; depths outside 1..length change nothing.
  // Effects: ages the class, moves its histograms, may start a job.
  void ObserveOverlap(const ClassKey& key, const Overlap& overlap);

  // The positions to leave a state at, ascending, closer than merge_tokens to no other. Where two meet, the more
  // important kind stays, of equal kinds the shallower; fixed kinds the policy does not use are left out.
  // Effects: marks the class as used. Cost: <= 100 us at 32K tokens and 8 places.
  std::vector<Candidate> Plan(const PlanRequest& request);

  // The same, with its reasons; changes nothing. Solves for every policy: for people, not for the path of a step.
  PlanExplanation Explain(const PlanRequest& request);

  // Whether the placement has use for fixed candidates of a kind.
  bool Uses(CheckpointKind kind) const;
  const PlannerOptions& options() const { return options_; }
  PlannerCounts counts() const;
  // Recounts; stops the process where something differs.
  void CheckIntegrity() const;

 private:
  struct Class;
  struct Finished;
  struct Mailbox;

  static Demand DemandOf(const Class& of, const PlanRequest& request);
  Class& ClassOf(const ClassKey& key);
  const Class* FindClass(const ClassKey& key) const;
  void Age(Class& of);
  void TakeFinished();
  void Renew(Class& of);
  std::vector<Candidate> MergedFixed(const PlanRequest& request) const;
  std::vector<int32_t> PlannedDepths(const PlanRequest& request, const PlacementPolicy& policy, DemandView demand,
                                     std::span<const Candidate> fixed, int32_t places) const;
  std::vector<Candidate> Choose(const PlanRequest& request, DemandView demand) const;

  // Set at construction.
  const PlannerOptions options_;
  const std::shared_ptr<const PlacementPolicy> policy_;
  const PlacementTraits traits_;
  PlanExecutor& executor_;
  // Shared with jobs, which may end after the planner.
  const std::shared_ptr<Mailbox> mailbox_;

  std::list<Class> classes_;  // Most recently used first.
  std::map<ClassKey, std::list<Class>::iterator> by_key_;
  int64_t next_serial_ = 0;
  PlannerCounts counts_;
};

}  // namespace invar::cache
