// A Model around a Model that may touch what goes in and what comes out: the place where bugs are planted.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "models/model.h"
#include "tools/sim/planted.h"
#include "tools/sim/random.h"

namespace invar::sim {

using Bytes = std::vector<std::byte>;

class PlantedModel : public models::Model {
 public:
  PlantedModel(std::unique_ptr<models::Model> model, const uint64_t seed)
      : model_(std::move(model)), random_(seed ^ 0x5EEDULL) {}

  const models::ModelSpec& spec() const final { return model_->spec(); }
  kernels::ConstF32View Forward(const models::SequenceMemory& memory,
                                const std::span<const models::ForwardSpan> spans) final {
    for (const models::ForwardSpan& span : spans) Before(memory, span);
    const kernels::ConstF32View logits = model_->Forward(memory, Spans(spans));
    for (const models::ForwardSpan& span : spans) {
      After(memory, span);
      ran_.insert_or_assign(span.state.value(), span.first.value() + static_cast<int32_t>(span.tokens.size()));
      begun_.insert_or_assign(span.state.value(), span.first.value());
    }
    return Logits(logits);
  }
  void Advance(const models::SequenceMemory& memory, const std::span<const models::StateAdvance> advances) final {
    model_->Advance(memory, Advances(advances));
  }

 protected:
  virtual void Before(const models::SequenceMemory&, const models::ForwardSpan&) {}
  virtual std::span<const models::ForwardSpan> Spans(const std::span<const models::ForwardSpan> spans) { return spans; }
  virtual void After(const models::SequenceMemory&, const models::ForwardSpan&) {}
  virtual std::span<const models::StateAdvance> Advances(const std::span<const models::StateAdvance> advances) {
    return advances;
  }
  virtual kernels::ConstF32View Logits(const kernels::ConstF32View& logits) { return logits; }

  // Whether `span` goes on from a state that its slot did not come to by itself.
  bool IsResumed(const models::ForwardSpan& span) const {
    const auto end = ran_.find(span.state.value());
    if (span.first.value() == 0) return false;
    // Of a span with a draft, some rows may have been for nothing.
    return end == ran_.end() || span.first.value() > end->second || span.first.value() <= begun_.at(end->first);
  }
  // The sequence's `index`-th page. Requires: it is not away.
  static PageId PageOf(const models::ForwardSpan& span, const int32_t index) {
    return span.pages[static_cast<size_t>(index - span.away_pages)];
  }
  std::byte* PageAt(const models::SequenceMemory& memory, const PageId page) const {
    return memory.pages + page.value() * spec().page_bytes;
  }
  std::byte* StateAt(const models::SequenceMemory& memory, const SlotId slot) const {
    return memory.states + slot.value() * spec().state_bytes;
  }
  Random& random() { return random_; }

 private:
  const std::unique_ptr<models::Model> model_;
  Random random_;
  // By slot: where its last span ended and began.
  std::map<int32_t, int32_t> ran_;
  std::map<int32_t, int32_t> begun_;
};

// The plants of speculation, of the slow tier, and of the prefix cache. Requires: `plant` is one of them.
std::unique_ptr<models::Model> PlantInSpeculation(Plant plant, std::unique_ptr<models::Model> model, uint64_t seed);
std::unique_ptr<models::Model> PlantInSlowTier(Plant plant, std::unique_ptr<models::Model> model, uint64_t seed);
std::unique_ptr<models::Model> PlantInCache(Plant plant, std::unique_ptr<models::Model> model, uint64_t seed);

}  // namespace invar::sim
