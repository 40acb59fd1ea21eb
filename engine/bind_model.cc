// Shapes and budgets of bind_model.h.
#include "engine/bind_model.h"

#include <algorithm>
#include <string>

#include "kernels/numerics.h"

namespace invar::engine {

cache::StateShape ShapeOf(const models::ModelSpec& spec) {
  return {.page_tokens = kernels::kPageTokens, .page_bytes = spec.page_bytes, .state_bytes = spec.state_bytes};
}

StatusOr<MemoryPlan> PlanMemory(const models::ModelSpec& spec, const EngineOptions& options) {
  int64_t slots = options.max_running;
  if (spec.state_bytes > 0) {
    const int64_t affordable = options.kv_budget_bytes / 2 / spec.state_bytes;
    slots = std::clamp<int64_t>(affordable, 1, options.max_running);
  }
  const int64_t for_pages = options.kv_budget_bytes - slots * spec.state_bytes;
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
                    .budget_bytes = cut ? pages * spec.page_bytes + slots * spec.state_bytes : options.kv_budget_bytes};
}

}  // namespace invar::engine
