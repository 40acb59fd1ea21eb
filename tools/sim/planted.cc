// A Model around a Model: it remembers old bytes of pages and slots, and brings them back.
#include "tools/sim/planted.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "tools/sim/random.h"

namespace invar::sim {
namespace {

using Bytes = std::vector<std::byte>;

class PlantedModel final : public models::Model {
 public:
  PlantedModel(const Plant plant, std::unique_ptr<models::Model> model, const uint64_t seed)
      : plant_(plant), model_(std::move(model)), random_(seed ^ 0x5EEDULL) {}

  const models::ModelSpec& spec() const override { return model_->spec(); }

  kernels::ConstF32View Forward(const models::SequenceMemory& memory,
                                const std::span<const models::ForwardSpan> spans) override {
    for (const models::ForwardSpan& span : spans) {
      if (plant_ == Plant::kStalePage) BringBackPage(memory, span);
      if (plant_ == Plant::kDirtySlot) BringBackState(memory, span);
    }
    const kernels::ConstF32View logits = model_->Forward(memory, spans);
    for (const models::ForwardSpan& span : spans) Remember(memory, span);
    return plant_ == Plant::kRowMixup ? ExchangeRows(logits) : logits;
  }

 private:
  std::byte* PageAt(const models::SequenceMemory& memory, const PageId page) const {
    return memory.pages + page.value() * spec().page_bytes;
  }
  std::byte* StateAt(const models::SequenceMemory& memory, const SlotId slot) const {
    return memory.states + slot.value() * spec().state_bytes;
  }

  // The first page of the span, as some earlier first page had it: as if its new contents had never been written.
  void BringBackPage(const models::SequenceMemory& memory, const models::ForwardSpan& span) {
    if (span.first.value() == 0 || !random_.Percent(5)) return;
    const auto old = old_pages_.find(span.pages[0].value());
    if (old == old_pages_.end()) return;
    std::memcpy(PageAt(memory, span.pages[0]), old->second.data(), old->second.size());
  }

  void BringBackState(const models::SequenceMemory& memory, const models::ForwardSpan& span) {
    const auto old = states_.find(span.state.value());
    if (span.first.value() != 0 || old == states_.end()) return;
    std::memcpy(StateAt(memory, span.state), old->second.data(), old->second.size());
  }

  void Remember(const models::SequenceMemory& memory, const models::ForwardSpan& span) {
    const std::byte* const state = StateAt(memory, span.state);
    states_[span.state.value()].assign(state, state + spec().state_bytes);
    const std::byte* const page = PageAt(memory, span.pages[0]);
    const int32_t id = span.pages[0].value();
    if (span.first.value() == 0 && pages_.contains(id)) old_pages_[id] = pages_[id];  // A new owner begins.
    pages_[id].assign(page, page + spec().page_bytes);
  }

  kernels::ConstF32View ExchangeRows(const kernels::ConstF32View& logits) {
    if (logits.rows < 2 || !random_.Percent(5)) return logits;
    mixed_.assign(logits.data, logits.data + logits.rows * logits.stride);
    std::swap_ranges(mixed_.begin(), mixed_.begin() + logits.cols, mixed_.begin() + (logits.rows - 1) * logits.stride);
    return {mixed_.data(), logits.rows, logits.cols, logits.stride};
  }

  const Plant plant_;
  const std::unique_ptr<models::Model> model_;
  Random random_;
  std::map<int32_t, Bytes> pages_;      // As last written.
  std::map<int32_t, Bytes> old_pages_;  // As the owner before left them.
  std::map<int32_t, Bytes> states_;
  std::vector<float> mixed_;
};

}  // namespace

std::optional<Plant> PlantNamed(const std::string_view name) {
  constexpr std::pair<std::string_view, Plant> kNames[] = {{"stale_page", Plant::kStalePage},
                                                           {"dirty_slot", Plant::kDirtySlot},
                                                           {"row_mixup", Plant::kRowMixup},
                                                           {"lost_cancel", Plant::kLostCancel}};
  for (const auto& [known, plant] : kNames) {
    if (known == name) return plant;
  }
  return std::nullopt;
}

std::unique_ptr<models::Model> PlantIn(const Plant plant, std::unique_ptr<models::Model> model, const uint64_t seed) {
  if (plant == Plant::kNone || plant == Plant::kLostCancel) return model;
  return std::make_unique<PlantedModel>(plant, std::move(model), seed);
}

}  // namespace invar::sim
