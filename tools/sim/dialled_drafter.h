// A drafter that knows the answers and errs as often as it is told: so every length of accepted runs comes up, and not
// only those a real drafter happens to reach on the model of hashes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "engine/speculate/drafter.h"

namespace invar::sim {

inline constexpr char kDialledDrafter[] = "dialled";
// The same as a drafter on compressed views: its requests' full KV may move out. Its views are a count of tokens; to
// make one it reads what is away.
inline constexpr char kDialledViewDrafter[] = "dialled_view";

// What the drafter knows of a request.
struct DraftTruth {
  std::vector<TokenId> tokens;      // Prompt and whole answer.
  int32_t agreement_percent = 100;  // Of the tokens it drafts.
};
using DraftTruths = std::map<SequenceId, DraftTruth>;

// Requires: `truths` outlives it and has every sequence before its first turn. Wrong tokens are below `usable_ids`.
std::unique_ptr<engine::Drafter> MakeDialledDrafter(const DraftTruths& truths, int32_t usable_ids, uint64_t seed);
std::unique_ptr<engine::Drafter> MakeDialledViewDrafter(const DraftTruths& truths, int32_t usable_ids, uint64_t seed);

}  // namespace invar::sim
