// The only place that knows both a model's shapes and the cache's pools.
#pragma once

#include <string>

#include "base/status.h"
#include "cache/state_shape.h"
#include "engine/engine.h"
#include "models/model.h"

namespace invar::engine {

cache::StateShape ShapeOf(const models::ModelSpec& spec);

// How a byte budget is shared out.
struct MemoryPlan {
  // What running sequences may hold; together within the budget. What they do not hold is for the cache.
  int32_t pages = 0;
  int32_t slots = 0;
  int64_t budget_bytes = 0;
};

// At most half of the budget may be state slots of running sequences, the rest pages, but at most max_pages (and the
// budget is then what these take). Errors: RESOURCE_EXHAUSTED where not one slot and one page fit.
StatusOr<MemoryPlan> PlanMemory(const models::ModelSpec& spec, const EngineOptions& options);

// Why no request can ever reuse what another one computed; empty where some can.
std::string WhyNothingIsReused(const EngineOptions& options, const cache::StateShape& shape, const MemoryPlan& plan);

}  // namespace invar::engine
