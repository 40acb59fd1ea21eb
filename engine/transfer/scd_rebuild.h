// ScdRebuild: a prefix of this model made of codes that another one's instance sent, in memory of its own, a bounded
// part at a time between two steps. What it gives goes into the cache under the codes' provenance.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/zeroed_memory.h"
#include "cache/prefix_image.h"
#include "engine/scd_profiles.h"
#include "models/model.h"

namespace invar::engine {

class ScdRebuild {
 public:
  // `rows_max`: of one forward, as the model was loaded. Errors: RESOURCE_EXHAUSTED. Requires: coded.held->takes; the
  // model outlives this; tokens has coded.end of them.
  static StatusOr<std::unique_ptr<ScdRebuild>> Make(models::Model& model, int64_t rows_max, CodedPrefix coded,
                                                    std::span<const TokenId> tokens);

  // The next part. True: that was the last. Errors: DATA_LOSS, where the codes are not those of the plan.
  StatusOr<bool> GoOn();
  // Requires: GoOn gave true; once.
  cache::PrefixImage Take();

 private:
  ScdRebuild(models::Model& model, const int64_t rows_max, CodedPrefix coded, const std::span<const TokenId> tokens)
      : model_(model), rows_max_(rows_max), coded_(std::move(coded)), tokens_(tokens.begin(), tokens.end()) {}

  models::Model& model_;
  const int64_t rows_max_;
  CodedPrefix coded_;
  const std::vector<TokenId> tokens_;
  std::vector<PageId> pages_;  // One piece of the memory.
  ZeroedMemory page_memory_;
  ZeroedMemory state_memory_;
  size_t layer_ = 0;
  int64_t row_ = 0;
};

}  // namespace invar::engine
