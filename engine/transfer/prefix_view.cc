// See prefix_view.h.
#include "engine/prefix_view.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/dense_page.h"
#include "kernels/numerics.h"

namespace invar::engine {
namespace {

constexpr int64_t kPage = kernels::kPageTokens;

}  // namespace

PrefixView MakePrefixView(const models::ModelSpec& spec, const kernels::PageShape& shape,
                          const cache::PrefixImage& image, const WantedView& wish) {
  Check(image.first_page == 0, "a view is made of all the KV", image.first_page);
  const std::unique_ptr<cache::Compressor> compressor = cache::MakeCompressor(wish.compressor).value();
  PrefixView view{.end = image.end, .layers = {}, .state = image.state};
  for (size_t layer = 0; layer < spec.attention.page_offsets_bytes.size(); ++layer) {
    const auto read = [&](const int64_t first, const kernels::KvRows& into) {
      for (int64_t place = first; place < first + into.slots;) {
        const int64_t count = std::min(kPage - place % kPage, first + into.slots - place);
        const std::byte* const page =
            image.pages[static_cast<size_t>(place / kPage)].data() + spec.attention.page_offsets_bytes[layer];
        kernels::ReadRows(shape, page, static_cast<int32_t>(place % kPage), into.Slots(place - first, count));
        place += count;
      }
    };
    const cache::CompressedLayer made = compressor->Prefill(
        shape, image.end, read,
        {.layer = LayerIndex(static_cast<int32_t>(layer)), .budget = cache::Budget::ShareOrAll(wish.kv_budget)});
    view.layers.push_back(made.Export());
  }
  return view;
}

StatusOr<ImportedView> ImportPrefixView(PrefixView view, const ViewShape& shape, const WantedView& wish) {
  const std::unique_ptr<cache::Compressor> compressor = cache::MakeCompressor(wish.compressor).value();
  if (view.layers.size() != shape.attention_layers || std::ssize(view.state) != shape.state_bytes) {
    return Status(StatusCode::kDataLoss, "a view of other layers or another state");
  }
  ImportedView imported{.end = view.end, .layers = {}, .state = std::move(view.state)};
  for (std::vector<std::byte>& bytes : view.layers) {
    StatusOr<cache::CompressedLayer> layer =
        cache::CompressedLayer::Import(bytes, shape.page, compressor->provenance());
    if (!layer.ok()) return layer.status();
    if (layer->tokens() != view.end || layer->settled() != view.end) {
      return Status(StatusCode::kDataLoss, "a view of another number of tokens");
    }
    imported.layers.push_back(*std::move(layer));
    std::vector<std::byte>().swap(bytes);
  }
  return imported;
}

}  // namespace invar::engine
