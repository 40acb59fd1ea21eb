// The default is the cache's own; all others evict units in the order of their last use.
#include "tools/cache_sim/policies.h"

#include <algorithm>
#include <array>

namespace invar::cache_sim {
namespace {

constexpr std::array<std::string_view, 10> kNames = {
    "default", "none",        "kv-only",         "end-only", "balanced",
    "block",   "logarithmic", "logarithmic-end", "sqrt",     "branch-on-demand"};

}  // namespace

std::optional<cache::CacheOptions> OptionsOf(const std::string_view policy) {
  if (std::find(kNames.begin(), kNames.end(), policy) == kNames.end()) return std::nullopt;
  cache::CacheOptions options;
  if (policy == kNames.front()) return options;
  options.placement = policy;
  options.eviction = "least-recently-used";
  return options;
}

std::span<const std::string_view> PolicyNames() { return kNames; }

}  // namespace invar::cache_sim
