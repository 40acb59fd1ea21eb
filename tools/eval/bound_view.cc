// See bound_view.h.
#include "tools/eval/bound_view.h"

#include <algorithm>
#include <cmath>

#include "kernels/dense_page.h"

namespace invar::eval {
namespace {

constexpr int64_t kPage = kernels::kEncodedPageSlots;
// From one upkeep to the next, as serving on views has it.
constexpr int32_t kUpkeepTokens = 64;

}  // namespace

BoundView::BoundView(Subject& subject, const cache::Compressor& compressor, const cache::Budget budget,
                     const QueryLog& log, const int32_t length)
    : subject_(subject),
      compressor_(compressor),
      budget_(budget),
      log_(log),
      kept_up_(length),
      log_degrees_(subject.spec().attention_layers) {
  for (int32_t layer = 0; layer < subject.spec().attention_layers; ++layer) {
    const ExactRows exact = subject.Rows(layer, 0, length);
    const Shown shown = log.Show(compressor.traits(), layer, length);
    layers_.push_back(compressor.Prefill(subject.page_shape(), exact.rows, ContextOf(layer, shown)));
    Bind(layer);
  }
}

cache::CompressContext BoundView::ContextOf(const int32_t layer, const Shown& shown) const {
  return {.layer = LayerIndex(layer), .observation = shown.observation, .budget = budget_};
}

void BoundView::Settle(const int32_t end) {
  const bool is_due = end - kept_up_ >= kUpkeepTokens;
  for (int32_t layer = 0; layer < subject_.spec().attention_layers; ++layer) {
    cache::CompressedLayer& view = layers_[layer];
    view.Append(subject_.Rows(layer, static_cast<int32_t>(view.tokens()), end).rows);
    if (is_due) {
      const Shown shown = log_.Show(compressor_.traits(), layer, end);
      compressor_.Maintain(view, end, ContextOf(layer, shown));
    }
    Bind(layer);
  }
  if (is_due) kept_up_ = end;
}

void BoundView::Bind(const int32_t layer) {
  const cache::CompressedLayer& view = layers_[layer];
  std::vector<float>& logs = log_degrees_[layer];
  logs.clear();
  for (int64_t p = 0; view.has_degrees() && p < view.body_pages(); ++p) {
    for (const cache::SlotMark& mark : view.page_marks(p))
      logs.push_back(static_cast<float>(std::log(static_cast<double>(mark.degree))));
  }
  for (int64_t slot = 0; slot < view.tail_slots(); slot += kPage) {
    const int64_t count = std::min(kPage, view.tail_slots() - slot);
    kernels::WriteRows(view.shape(), 0, view.tail().Slots(slot, count), subject_.tail_page(layer, slot / kPage));
  }
}

std::vector<models::ViewLayer> BoundView::LayersAt(const int32_t position) const {
  std::vector<models::ViewLayer> out;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const cache::CompressedLayer& view = layers_[layer];
    out.push_back({.body = {.bytes = view.body_pages() > 0 ? view.page(0).data() : nullptr,
                            .pages = static_cast<int32_t>(view.body_pages()),
                            .encoding = view.encoding(),
                            .log_degrees = log_degrees_[layer].empty() ? nullptr : log_degrees_[layer].data()},
                   .slots = static_cast<int32_t>(view.slots() + position - view.tokens())});
  }
  return out;
}

double BoundView::bytes_share() const {
  double bytes = 0.0;
  for (const cache::CompressedLayer& view : layers_) bytes += static_cast<double>(view.bytes());
  const kernels::PageShape shape = subject_.page_shape();
  const double row = 2.0 * shape.kv_heads * shape.head_dim * static_cast<double>(kernels::BytesOf(shape.dense));
  return bytes / (row * tokens() * static_cast<double>(layers_.size()));
}

}  // namespace invar::eval
