// See layer_export.h.
#include "engine/transfer/layer_export.h"

#include <algorithm>
#include <utility>

#include "cache/state_shape.h"
#include "kernels/numerics.h"

namespace invar::engine {

using kernels::kPageTokens;

LayerExport::LayerExport(const models::ModelSpec& spec, const int32_t first_page, const int32_t tokens,
                         const int32_t step_tokens, EventSink& sink)
    : page_bytes_(spec.page_bytes),
      state_bytes_(spec.state_bytes),
      tokens_(tokens),
      piece_pages_(std::max(1, step_tokens / kPageTokens)),
      within_steps_(tokens - first_page * kPageTokens >= kStreamTokens),
      sink_(sink) {
  for (const LayerPlace& place : LayerPlacesOf(LayersOf(spec)))
    layers_.push_back({.place = place, .next_page = first_page});
}

int32_t LayerExport::SpanEnd(const int32_t computed) const {
  return PieceEnd(computed / kPageTokens, cache::StateShape::PagesFor(tokens_), piece_pages_) * kPageTokens;
}

void LayerExport::Begin(const SequencePlace& place, const Range& span) {
  place_ = place;
  end_ = span.end;
  // The span's own end is certain of no layer yet, even where all its KV lies there: the state is not.
  Give(place, layers_.size(), std::min(span.there, tokens_ - 1));
}

void LayerExport::Inputs(const int32_t layer, const kernels::ConstF32View& /*residual*/,
                         const kernels::Activations& /*normed*/) {
  if (within_steps_) Give(place_, static_cast<size_t>(layer), end_);
}

void LayerExport::Ran(const SequencePlace& place, const int32_t computed) { Give(place, layers_.size(), computed); }

void LayerExport::Give(const SequencePlace& place, const size_t layers, const int32_t computed) {
  const bool is_whole = computed == tokens_;
  const int32_t pages = is_whole ? cache::StateShape::PagesFor(tokens_) : computed / kPageTokens;
  PrefixLayersEvent event{.piece_pages = piece_pages_};
  for (size_t i = 0; i < layers; ++i) {
    Layer& layer = layers_[i];
    LayerPart part{.layer = static_cast<int32_t>(i)};
    // Its capacity stays with whoever sends it.
    part.kv.reserve(static_cast<size_t>(std::max(0, pages - layer.next_page) * layer.place.bytes.page));
    for (; layer.next_page < pages; ++layer.next_page) {
      const PageId page = place.pages[static_cast<size_t>(layer.next_page)];
      const std::byte* const from = place.memory.pages + page.value() * page_bytes_ + layer.place.page_offset;
      part.kv.insert(part.kv.end(), from, from + layer.place.bytes.page);
    }
    if (is_whole && layer.place.bytes.state > 0 && !std::exchange(layer.has_state, true)) {
      const std::byte* const from = place.memory.states + place.state.value() * state_bytes_ + layer.place.state_offset;
      part.state.assign(from, from + layer.place.bytes.state);
    }
    if (!part.kv.empty() || !part.state.empty()) event.parts.push_back(std::move(part));
  }
  if (!event.parts.empty()) sink_.Push(std::move(event));
}

}  // namespace invar::engine
