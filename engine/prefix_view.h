// PrefixView: a compressed view of a prefix on its way to an instance that drafts on it before the full KV has come:
// every attention layer as cache::CompressedLayer exports it, and the recurrent states as they are.
// Threads: any; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/compressed_layer.h"
#include "cache/compressor.h"
#include "cache/prefix_image.h"
#include "kernels/kv_encoding.h"
#include "models/model.h"

namespace invar::engine {

// How it is wanted: what cannot be said to be a kind that drafts are made on is refused (CheckCompressor).
struct WantedView {
  std::string compressor = {};  // A kind, or kind:settings. Empty: no view.
  std::optional<float> kv_budget = {};
};

struct PrefixView {
  int32_t end = 0;  // It stands for so many tokens.
  std::vector<std::vector<std::byte>> layers = {};
  std::vector<std::byte> state = {};
};

// Of the KV in `image`, all of it from its first page on. Requires: the wish was checked; `shape` is that of the
// model's pages. Cost: a pass over the KV, on this thread.
PrefixView MakePrefixView(const models::ModelSpec& spec, const kernels::PageShape& shape,
                          const cache::PrefixImage& image, const WantedView& wish);

// What it says, as layers that can be drafted on. Errors: those of CompressedLayer::Import; DATA_LOSS where the layers
// or the state are not those of `end` tokens of this model.
struct ImportedView {
  int32_t end = 0;
  std::vector<cache::CompressedLayer> layers = {};
  std::vector<std::byte> state = {};
};
// Of the model that drafts on it.
struct ViewShape {
  size_t attention_layers = 0;
  int64_t state_bytes = 0;
  kernels::PageShape page;
};
StatusOr<ImportedView> ImportPrefixView(PrefixView view, const ViewShape& shape, const WantedView& wish);

}  // namespace invar::engine
