// Why checkpoints of one prefix lie, or would come to lie, where they do: plain numbers for the admin service.
// Positions are counts of tokens; no token is among them. Threads: any; values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cache/prefix_match.h"

namespace invar::cache {

// What becomes of a place where something asks for a checkpoint.
enum class PlaceVerdict : uint8_t {
  kPlaced,        // The state is kept there when it passes, if memory is to be had.
  kBeforeResume,  // At or before where the request resumes: the state does not pass again.
  kNearResume,    // So close behind it that a state saves next to nothing.
  kNearOther,     // Closer to a place of a better claim than running the tokens between is worth.
  kPastEnd,       // Behind the last token but one: a token is always left to run.
  kUnused,        // The placement makes none of this kind.
};

// A place and what becomes of it.
struct PlaceDecision {
  CheckpointPlace place;
  PlaceVerdict verdict = PlaceVerdict::kPlaced;
};

// What the planner can say of a prefix.
enum class PlanBasis : uint8_t {
  kNoState,     // A model without recurrent state: KV alone is reused, and there is nothing to place.
  kNoWriting,   // The request, the configuration or the placement leaves nothing in the cache.
  kFormula,     // The placement learns nothing: its positions follow from the length.
  kOtherParts,  // The prefix parts from what is there inside another one's tokens: the branch is its place.
  kNothingNew,  // All of the part that follow-ups repeat is there already.
  kUnlearned,   // Too few prefixes of the class have been come back to.
  kLearned,
};

struct PlanReport {
  struct Depth {
    int32_t position = 0;  // Later requests that share the prefix up to here, and no further ...
    double requests = 0;   // ... so many are expected over the life of the prefix.
  };
  struct Alternative {
    std::string_view policy;
    int32_t checkpoints = 0;  // It would place; some take no number.
    double cost_tokens = 0;
  };

  PrefixMatch match;                     // What a request with these tokens finds now.
  std::vector<CheckpointPlace> there;    // Checkpoints along the prefix, ascending.
  std::vector<PlaceDecision> decisions;  // Hints, branch, end of the stable part; then what the placement adds.
  PlanBasis basis = PlanBasis::kUnlearned;
  bool renewing = false;  // What the class taught is being worked out anew: the next answer may differ.
  int32_t segment_begin = 0, segment_end = 0;  // What the plan is about: the part that nobody brought so far.
  double eviction_price_tokens = 0;            // What a checkpoint that was evicted of late was worth.
  int32_t planned = 0;                         // Checkpoints that the placement adds.
  double price_tokens = 0;                     // What a planned one must be expected to save, of the above.

  // Of what the class taught; empty unless kLearned.
  std::string_view anchor;       // From where depths are carried over to a new length: "start", "end" or "share".
  double requests_expected = 0;  // Later requests of a prefix of the class.
  std::vector<Depth> histogram;
  double cost_tokens = 0;                 // Expected to be run again with them.
  double cost_without_tokens = 0;         // Without those.
  std::vector<Alternative> alternatives;  // Each placement, given as many checkpoints.
};

}  // namespace invar::cache
