// Bugs that KV which streams from the slow tier can have, done where a forward reads it: behind all checksums, as a bug
// of the engine would be.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/numerics.h"
#include "tools/sim/planted_model.h"

namespace invar::sim {
namespace {

using models::ForwardSpan;
using models::SequenceMemory;

class PlantedStreams : public PlantedModel {
 public:
  using PlantedModel::PlantedModel;

 protected:
  int64_t layer_page_bytes() const { return spec().page_bytes / spec().attention_layers; }
  // What a forward reads as `layer` of the span's stream: changes `bytes`, a copy of what is right.
  virtual void Change(const ForwardSpan& span, int32_t layer, Bytes& bytes) = 0;

 private:
  // A stream as the planted bug has it.
  class Source final : public models::KvSource {
   public:
    Source(PlantedStreams& plant, const ForwardSpan& span) : plant_(plant), span_(span) {}
    const std::byte* Layer(const int32_t layer) override {
      const std::byte* const right = span_.away->Layer(layer);
      bytes_.assign(right, right + plant_.layer_page_bytes() * span_.away_pages);
      plant_.Change(span_, layer, bytes_);
      return bytes_.data();
    }

   private:
    PlantedStreams& plant_;
    const ForwardSpan span_;
    Bytes bytes_;
  };

  std::span<const ForwardSpan> Spans(const std::span<const ForwardSpan> spans) final {
    sources_.clear();
    spans_.assign(spans.begin(), spans.end());
    for (ForwardSpan& span : spans_) {
      if (span.away == nullptr) continue;
      sources_.push_back(std::make_unique<Source>(*this, span));
      span.away = sources_.back().get();
    }
    return spans_;
  }

  std::vector<ForwardSpan> spans_;
  std::vector<std::unique_ptr<Source>> sources_;
};

class LayerNotRead final : public PlantedStreams {
 public:
  using PlantedStreams::PlantedStreams;

 private:
  void Change(const ForwardSpan&, int32_t, Bytes& bytes) override {
    Bytes right = bytes;
    if (random().Percent(5)) {
      bytes = ring_;
      bytes.resize(right.size());
    }
    ring_ = std::move(right);
  }

  Bytes ring_;  // What the last layer left there.
};

// Nobody has to have reused it; then nothing shows.
class ReusedBeforeWritten final : public PlantedStreams {
 public:
  using PlantedStreams::PlantedStreams;

 private:
  void Before(const SequenceMemory& memory, const ForwardSpan& span) override {
    memory_ = memory;
    std::vector<PageId>& held = held_[span.state.value()];
    held.resize(static_cast<size_t>(span.away_pages) + span.pages.size(), PageId(0));
    std::copy(span.pages.begin(), span.pages.end(), held.begin() + span.away_pages);
  }
  void Change(const ForwardSpan& span, const int32_t layer, Bytes& bytes) override {
    const std::byte* const page = PageAt(memory_, held_.at(span.state.value())[0]);
    std::memcpy(bytes.data(), page + layer * layer_page_bytes(), static_cast<size_t>(layer_page_bytes()));
  }

  SequenceMemory memory_;
  std::map<int32_t, std::vector<PageId>> held_;  // By slot: where its pages are, or were when they moved out.
};

class OthersStream final : public PlantedStreams {
 public:
  using PlantedStreams::PlantedStreams;

 private:
  void Change(const ForwardSpan& span, const int32_t layer, Bytes& bytes) override {
    const Bytes right(bytes.begin(), bytes.begin() + layer_page_bytes());
    const auto other = std::find_if(first_pages_.begin(), first_pages_.end(), [&](const auto& entry) {
      return entry.first.first != span.state.value() && entry.first.second == layer;
    });
    if (other != first_pages_.end()) std::copy(other->second.begin(), other->second.end(), bytes.begin());
    first_pages_[{span.state.value(), layer}] = right;
  }

  std::map<std::pair<int32_t, int32_t>, Bytes> first_pages_;  // By slot and layer.
};

}  // namespace

std::unique_ptr<models::Model> PlantInSlowTier(const Plant plant, std::unique_ptr<models::Model> model,
                                               const uint64_t seed) {
  switch (plant) {
    case Plant::kLayerNotRead:
      return std::make_unique<LayerNotRead>(std::move(model), seed);
    case Plant::kReusedBeforeWritten:
      return std::make_unique<ReusedBeforeWritten>(std::move(model), seed);
    case Plant::kOthersStream:
      return std::make_unique<OthersStream>(std::move(model), seed);
    default:
      Check(false, "a plant of the slow tier", static_cast<int>(plant));
      return model;
  }
}

}  // namespace invar::sim
