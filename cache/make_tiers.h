// From the configuration to tiers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cache/tiers/file_layer.h"
#include "cache/tiers/tier.h"
#include "config/config.h"

namespace invar::cache {

struct TierContext {
  const Clock& clock;
  FileLayer& files;      // Both outlive the tiers.
  std::string store_id;  // One line: model fingerprint and numerics id. Records of another id are never met.
};

// The tiers that are configured, nearest first; none is an empty list.
// Errors: what is wrong with a folder or a file that the configuration names. A remote server that is down is none.
StatusOr<std::vector<std::unique_ptr<Tier>>> MakeTiers(const config::Config::Cache::Tiers& config,
                                                       const TierContext& context);

}  // namespace invar::cache
