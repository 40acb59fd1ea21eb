// The only place that knows both a model's shapes and the cache's pools.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "cache/cache_memory.h"
#include "cache/lease.h"
#include "cache/state_shape.h"
#include "engine/engine_options.h"
#include "engine/transfer/live_export.h"
#include "kernels/sample.h"
#include "models/model.h"

namespace invar::engine {

cache::StateShape ShapeOf(const models::ModelSpec& spec);

// Where sequences' KV and states lie, and which of it one of them holds.
models::SequenceMemory MemoryIn(const cache::CacheMemory& memory);
SequencePlace PlaceOf(const cache::CacheMemory& memory, const cache::PrefixLease& lease);

// How a byte budget is shared out.
struct MemoryPlan {
  // What running sequences may hold; together within the budget. What they do not hold is for the cache.
  int32_t pages = 0;
  int32_t slots = 0;
  int64_t budget_bytes = 0;
  // On top, where there is a slow tier: what drafters and full KV share (draft_share.h).
  int64_t shared_bytes = 0;
  // State logs of one step, beside the budget_bytes.
  int64_t log_bytes = 0;
  int64_t page_bytes = 0;
  int64_t state_bytes = 0;

  // What `pages` becomes while drafters have so much of what is shared.
  int32_t PagesBeside(const int64_t drafters_bytes) const {
    if (page_bytes == 0 || shared_bytes == 0) return pages;
    return static_cast<int32_t>((budget_bytes - slots * state_bytes + shared_bytes - drafters_bytes) / page_bytes);
  }
};

// State logs get what the largest step of drafts takes, but at most 1 / kLogShare of the budget; nothing without
// drafts, or where the model has no states. At most half of the rest may be state slots of running sequences, the rest
// pages, but at most max_pages (and the budget is then what these take). Errors: RESOURCE_EXHAUSTED where not one slot
// and one page fit.
inline constexpr int64_t kLogShare = 16;
StatusOr<MemoryPlan> PlanMemory(const models::ModelSpec& spec, const EngineOptions& options);

// Rows of state logs that one step may write, heads included, and the rows a head counts for. For Plan().
int32_t LogRows(const models::ModelSpec& spec, const MemoryPlan& plan);
int32_t LogHeadRows(const models::ModelSpec& spec);

// Chooses tokens by the instruction set that `model` computes with; by the best where it names none.
kernels::RowSampler SamplerFor(const models::Model& model);

// Chooses tokens where its logits lie; null: the host chooses.
kernels::RowChooser* ChooserOf(const models::Model& model);

// The threads that it computes with; null: it has none.
WorkerPool* PoolOf(const models::Model& model);

// What pages of KV that views stand for look like; none: its KV cannot be viewed, or it names no backend that knows.
std::optional<kernels::PageShape> ViewShapeOf(const models::Model& model);

// Why no request can ever reuse what another one computed; empty where some can.
std::string WhyNothingIsReused(const EngineOptions& options, const cache::StateShape& shape, const MemoryPlan& plan);

}  // namespace invar::engine
