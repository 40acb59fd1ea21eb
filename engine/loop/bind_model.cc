// Shapes and budgets of bind_model.h.
#include "engine/loop/bind_model.h"

#include <algorithm>
#include <string>

#include "engine/compressed/compressed_kv.h"
#include "kernels/numerics.h"

namespace invar::engine {

cache::StateShape ShapeOf(const models::ModelSpec& spec) {
  return {.page_bytes = spec.page_bytes, .state_bytes = spec.state_bytes};
}

models::SequenceMemory MemoryIn(const cache::CacheMemory& memory) {
  return {.pages = memory.pages().arena(), .states = memory.slots().arena()};
}

SequencePlace PlaceOf(const cache::CacheMemory& memory, const cache::PrefixLease& lease) {
  return {.memory = MemoryIn(memory), .pages = lease.pages().ids(), .state = lease.slot()};
}

int32_t LogHeadRows(const models::ModelSpec& spec) {
  if (spec.state_log_row_bytes == 0) return 0;
  return static_cast<int32_t>((spec.state_log_head_bytes + spec.state_log_row_bytes - 1) / spec.state_log_row_bytes);
}

int32_t LogRows(const models::ModelSpec& spec, const MemoryPlan& plan) {
  return spec.state_log_row_bytes == 0 ? INT32_MAX : static_cast<int32_t>(plan.log_bytes / spec.state_log_row_bytes);
}

namespace {

int64_t LogBytes(const models::ModelSpec& spec, const EngineOptions& options) {
  if (options.draft_tokens_max == 0 || spec.state_log_row_bytes == 0) return 0;
  // Every row of a draft has logits, and a draft has two rows at least.
  const int64_t rows = std::min(options.max_logits_rows, options.max_batch_tokens);
  const int64_t spans = std::min<int64_t>(options.max_running, rows / 2);
  const int64_t most = (rows + spans * LogHeadRows(spec)) * spec.state_log_row_bytes;
  return std::min(most, options.kv_budget_bytes / kLogShare);
}

}  // namespace

StatusOr<MemoryPlan> PlanMemory(const models::ModelSpec& spec, const EngineOptions& options) {
  const int64_t log_bytes = LogBytes(spec, options);
  const int64_t budget_bytes = options.kv_budget_bytes - log_bytes;
  int64_t slots = options.max_running;
  if (spec.state_bytes > 0) {
    const int64_t affordable = budget_bytes / 2 / spec.state_bytes;
    slots = std::clamp<int64_t>(affordable, 1, options.max_running);
  }
  const int64_t for_pages = budget_bytes - slots * spec.state_bytes;
  const int64_t affordable_pages = spec.page_bytes == 0 ? INT32_MAX : for_pages / spec.page_bytes;
  const int64_t pages = std::min<int64_t>({affordable_pages, options.max_pages, INT32_MAX / kernels::kPageTokens});
  if (for_pages < 0 || pages < 1) {
    return ResourceExhausted("the KV budget of " + std::to_string(options.kv_budget_bytes) +
                             " bytes holds no sequence: one needs at least " +
                             std::to_string(spec.state_bytes + spec.page_bytes) +
                             " bytes (recurrent state and one page); raise engine.kv_budget");
  }
  const bool cut = options.max_pages <= affordable_pages;
  return MemoryPlan{.pages = static_cast<int32_t>(pages),
                    .slots = static_cast<int32_t>(slots),
                    .budget_bytes = cut ? pages * spec.page_bytes + slots * spec.state_bytes : budget_bytes,
                    .shared_bytes = options.slow_tier.path.empty() ? 0 : options.draft_memory_bytes,
                    .log_bytes = log_bytes,
                    .page_bytes = spec.page_bytes,
                    .state_bytes = spec.state_bytes};
}

kernels::RowSampler SamplerFor(const models::Model& model) {
  const kernels::Backend* const backend = model.backend();
  return kernels::RowSampler::Create(backend == nullptr ? std::string_view() : backend->isa()).value();
}

kernels::RowChooser* ChooserOf(const models::Model& model) {
  return model.backend() == nullptr ? nullptr : model.backend()->chooser();
}

WorkerPool* PoolOf(const models::Model& model) {
  return model.backend() == nullptr ? nullptr : &model.backend()->pool();
}

std::optional<kernels::PageShape> ViewShapeOf(const models::Model& model) {
  if (model.backend() == nullptr || !WhyNoViews(model.spec()).empty()) return std::nullopt;
  const kernels::AttentionShape& shape = model.spec().attention.shape;
  return model.backend()->KvPageShape(shape.kv_heads, shape.head_dim);
}

std::string WhyNothingIsReused(const EngineOptions& options, const cache::StateShape& shape, const MemoryPlan& plan) {
  if (!options.prefix_cache) return "cache.enabled is false";
  // A follow-up goes on in a copy of the page that its prefix ends in; the state itself may become its own.
  const int64_t least = shape.state_bytes + 2 * shape.page_bytes;
  if (plan.budget_bytes >= least) return {};
  return "engine.kv_budget holds no cached prefix beside a running request: that takes at least " +
         std::to_string(least) + " bytes (recurrent state and two pages), and there are " +
         std::to_string(plan.budget_bytes);
}

}  // namespace invar::engine
