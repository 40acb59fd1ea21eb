// The default is the cache's own; all others evict units in the order of their last use.
#include "tools/cache_sim/policies.h"

#include <algorithm>
#include <array>

#include "config/cache_names.h"

namespace invar::cache_sim {
namespace {

// "default", then the placements that it is compared with: all but its own.
constexpr auto kNames = [] {
  auto names = kPlacementNames;
  names.front() = "default";
  return names;
}();

}  // namespace

std::optional<cache::CacheOptions> OptionsOf(const std::string_view policy) {
  if (std::find(kNames.begin(), kNames.end(), policy) == kNames.end()) return std::nullopt;
  cache::CacheOptions options;
  if (policy == kNames.front()) return options;
  options.tuning.placement = policy;
  options.tuning.eviction = "least-recently-used";
  return options;
}

std::span<const std::string_view> PolicyNames() { return kNames; }

}  // namespace invar::cache_sim
