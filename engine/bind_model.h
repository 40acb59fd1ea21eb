// The only place that knows both a model's shapes and the cache's pools.
#pragma once

#include "base/status.h"
#include "cache/state_shape.h"
#include "engine/engine.h"
#include "models/model.h"

namespace invar::engine {

cache::StateShape ShapeOf(const models::ModelSpec& spec);

// How a byte budget becomes pools.
struct MemoryPlan {
  int32_t pages = 0;
  int32_t slots = 0;
};

// At most half of the budget goes to state slots (one a running sequence), the rest to pages, but never more of either
// than max_running sequences of full length can use, nor than max_pages. Errors: RESOURCE_EXHAUSTED where not one slot
// and one page fit.
StatusOr<MemoryPlan> PlanMemory(const models::ModelSpec& spec, const EngineOptions& options);

}  // namespace invar::engine
