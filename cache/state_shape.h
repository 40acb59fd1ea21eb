// How much memory sequences take: the cache never sees a model, only these numbers (engine/loop/bind_model.h fills them
// in).
#pragma once

#include <cstdint>

#include "kernels/numerics.h"

namespace invar::cache {

struct StateShape {
  int64_t page_bytes = 0;   // One page, all attention layers.
  int64_t state_bytes = 0;  // Recurrent and convolution state of one sequence, all layers; 0 where there is none.

  // Pages that hold `tokens` positions.
  static constexpr int32_t PagesFor(const int64_t tokens) {
    return static_cast<int32_t>((tokens + kernels::kPageTokens - 1) / kernels::kPageTokens);
  }
};

}  // namespace invar::cache
