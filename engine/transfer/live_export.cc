// The kinds of live_export.h.
#include "engine/transfer/live_export.h"

#include <variant>

#include "engine/transfer/layer_export.h"
#include "engine/transfer/scd_export.h"

namespace invar::engine {

std::unique_ptr<LiveExport> MakeLiveExport(const Request& request, models::Model& model, const int32_t step_tokens,
                                           EventSink& sink) {
  const auto tokens = static_cast<int32_t>(request.prompt.size());
  if (const auto* const raw = std::get_if<RawExport>(&request.live_export); raw != nullptr) {
    return std::make_unique<LayerExport>(model.spec(), raw->first_page, tokens, step_tokens, sink);
  }
  if (const auto* const coded = std::get_if<CodedExport>(&request.live_export); coded != nullptr) {
    return std::make_unique<ScdExport>(model, *coded, tokens, sink);
  }
  return nullptr;
}

}  // namespace invar::engine
