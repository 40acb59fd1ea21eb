// What of the prefix cache to forget: words that cross threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cache/scope.h"

namespace invar::cache {

// kAll: in tiers too. KV and states are evicted apart and can be forgotten apart, in memory alone: what tiers hold of
// them can come back. Of a model without states, KV is all there is.
enum class CachedPart { kAll, kKv, kStates };

// What is named separates; what is not named is meant in all its kinds, provenances among them.
struct FlushOptions {
  std::optional<std::string> tenant = std::nullopt;
  std::optional<std::string> salt = std::nullopt;  // Of `tenant`, which is given then.
  CachedPart part = CachedPart::kAll;

  bool Covers(const Scope& scope) const {
    return (!tenant.has_value() || scope.tenant == *tenant) && (!salt.has_value() || scope.salt == *salt);
  }
};

// What a flush has freed in memory.
struct FlushReport {
  int64_t nodes = 0;
  int64_t checkpoints = 0;
  int64_t bytes = 0;
};

}  // namespace invar::cache
