// Where checkpoints may go and what may be evicted first, by name. The one list, the defaults first: configuration and
// tools offer these names; cache/checkpoint/registry.cc and cache/evict/registry.cc say what each is.
#pragma once

#include <array>
#include <string_view>

namespace invar {

inline constexpr std::array<std::string_view, 10> kPlacementNames = {
    "optimal-dp", "none",        "kv-only",         "end-only", "balanced",
    "block",      "logarithmic", "logarithmic-end", "sqrt",     "branch-on-demand"};

// "duel" is no order: both orders are played, and the better one followed.
inline constexpr std::array<std::string_view, 3> kEvictionNames = {"duel", "least-recently-used", "node-demand"};

}  // namespace invar
