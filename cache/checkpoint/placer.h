// CheckpointPlacer: what a sequence teaches the planner, and what it asks it. It knows tree and queries; the planner
// (planner.h) knows positions and classes only. A class of prefixes is: the same tenant and salt, hanging on the same
// place of the tree, of about the same length. Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cache/checkpoint/placement.h"
#include "cache/checkpoint/planner.h"
#include "cache/placement_report.h"
#include "cache/plan_report.h"
#include "cache/prefix_query.h"
#include "cache/tree/radix_tree.h"

namespace invar::cache {

struct PlacerOptions {
  std::string_view placement;    // One of PlacementNames().
  int32_t places = 8;            // Most checkpoints a prompt beside the fixed ones.
  bool learns = true;            // From classes of prefixes, where the placement can.
  const Clock* clock = nullptr;  // Times what the planner does, for AddTo; null: not timed.
};

class CheckpointPlacer {
 public:
  // Requires: `tree` and `executor` outlive this.
  CheckpointPlacer(const PlacerOptions& options, RadixTree& tree, PlanExecutor& executor);

  const PlacementTraits& traits() const { return traits_; }

  // `query` found `found`: where in what an earlier prefix brought it stops matching is learned.
  void ObserveOverlap(const Match& found);
  // What a prefix brought is in the tree: [from, to) of `tokens`.
  void ObserveEntry(const Scope& scope, std::span<const TokenId> tokens, int32_t from, int32_t to);

  // The class of what `query` brings beyond `found`; none where it parts in the middle of what another brought.
  std::optional<ClassKey> ClassOf(const PrefixQuery& query, const Match& found) const;
  // Where the sequence should leave its state, ascending. `match`: what it shares and where it resumes;
  // `private_from`: the end of all that was there before; `price_tokens`: what a checkpoint must save to be worth its
  // memory, by what was evicted of late.
  std::vector<CheckpointPlace> PlacesFor(const PrefixQuery& query, const PrefixMatch& match,
                                         const std::optional<ClassKey>& key, int32_t private_from, double price_tokens);

  // Fills in what a PlanReport says beside what the tree holds: the answer of PlacesFor and its reasons.
  // Requires: match and eviction_price_tokens are filled in.
  void Explain(const PrefixQuery& query, const std::optional<ClassKey>& key, int32_t private_from, PlanReport& report);
  // What was planned and learned so far.
  void AddTo(PlacementReport& report) const;
  void CheckIntegrity() const { planner_.CheckIntegrity(); }

 private:
  TimeNs Now() const { return clock_ == nullptr ? 0 : clock_->Now(); }
  PlanRequest RequestFor(const PrefixQuery& query, const PrefixMatch& match, const std::optional<ClassKey>& key,
                         int32_t private_from, double price_tokens, std::span<const CheckpointPlace> fixed) const;
  PlanBasis BasisOf(const PrefixQuery& query, const std::optional<ClassKey>& key, int32_t private_from,
                    bool learned) const;
  PlaceVerdict VerdictOn(const CheckpointPlace& wish, const PlanRequest& request, const PlanExplanation& plan) const;
  ClassKey KeyOf(const Scope& scope, const Node* trunk, int32_t length) const;

  RadixTree& tree_;
  // Set at construction. Shared with jobs of the planner, which may outlive it.
  const std::shared_ptr<const PlacementPolicy> placement_;
  const PlacementTraits traits_;
  const bool learns_;
  const Clock* const clock_;
  CheckpointPlanner planner_;
  int64_t plan_ns_ = 0;  // Spent in it.
};

}  // namespace invar::cache
