// What of the prefix cache to forget: words that cross threads.
#pragma once

#include <optional>

#include "cache/scope.h"

namespace invar::cache {

// kAll: in tiers too. KV and states are evicted apart and can be forgotten apart, in memory alone: what tiers hold of
// them can come back. Of a model without states, KV is all there is.
enum class CachedPart { kAll, kKv, kStates };

struct FlushOptions {
  std::optional<Scope> scope = std::nullopt;  // None: of all scopes.
  CachedPart part = CachedPart::kAll;
};

}  // namespace invar::cache
