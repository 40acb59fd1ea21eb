// A Model around a Model: it remembers old bytes of pages and slots, and brings them back.
#include "tools/sim/planted.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "tools/sim/planted_model.h"

namespace invar::sim {
namespace {

class PlantedMemory final : public PlantedModel {
 public:
  PlantedMemory(const Plant plant, std::unique_ptr<models::Model> model, const uint64_t seed)
      : PlantedModel(std::move(model), seed), plant_(plant) {}

 private:
  void Before(const models::SequenceMemory& memory, const models::ForwardSpan& span) override {
    if (plant_ == Plant::kStalePage) BringBackPage(memory, span);
    if (plant_ == Plant::kDirtySlot) BringBackState(memory, span);
  }
  void After(const models::SequenceMemory& memory, const models::ForwardSpan& span) override { Remember(memory, span); }
  kernels::ConstF32View Logits(const kernels::ConstF32View& logits) override {
    return plant_ == Plant::kRowMixup ? ExchangeRows(logits) : logits;
  }

  // The first page of the span, as some earlier first page had it: as if its new contents had never been written.
  void BringBackPage(const models::SequenceMemory& memory, const models::ForwardSpan& span) {
    if (span.first.value() == 0 || !random().Percent(5)) return;
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
    if (logits.rows < 2 || !random().Percent(5)) return logits;
    mixed_.assign(logits.data, logits.data + logits.rows * logits.stride);
    std::swap_ranges(mixed_.begin(), mixed_.begin() + logits.cols, mixed_.begin() + (logits.rows - 1) * logits.stride);
    return {mixed_.data(), logits.rows, logits.cols, logits.stride};
  }

  const Plant plant_;
  std::map<int32_t, Bytes> pages_;      // As last written.
  std::map<int32_t, Bytes> old_pages_;  // As the owner before left them.
  std::map<int32_t, Bytes> states_;
  std::vector<float> mixed_;
};

constexpr std::pair<std::string_view, Plant> kNames[] = {{"stale_page", Plant::kStalePage},
                                                         {"dirty_slot", Plant::kDirtySlot},
                                                         {"row_mixup", Plant::kRowMixup},
                                                         {"lost_cancel", Plant::kLostCancel},
                                                         {"wrong_checkpoint", Plant::kWrongCheckpoint},
                                                         {"shared_slot", Plant::kSharedSlot},
                                                         {"shared_page", Plant::kSharedPage},
                                                         {"stale_kv", Plant::kStaleKv},
                                                         {"late_state", Plant::kLateState},
                                                         {"scope_ignored", Plant::kScopeIgnored},
                                                         {"no_rollback", Plant::kNoRollback},
                                                         {"one_too_many", Plant::kOneTooMany},
                                                         {"accepts_wrong", Plant::kAcceptsWrong},
                                                         {"draft_published", Plant::kDraftPublished},
                                                         {"noise_position", Plant::kNoisePosition},
                                                         {"layer_not_read", Plant::kLayerNotRead},
                                                         {"reused_before_written", Plant::kReusedBeforeWritten},
                                                         {"others_stream", Plant::kOthersStream}};

}  // namespace

std::optional<Plant> PlantNamed(const std::string_view name) {
  for (const auto& [known, plant] : kNames) {
    if (known == name) return plant;
  }
  return std::nullopt;
}

std::vector<std::string> PlantNames() {
  std::vector<std::string> names;
  for (const auto& [name, plant] : kNames) names.emplace_back(name);
  return names;
}

std::unique_ptr<models::Model> PlantIn(const Plant plant, std::unique_ptr<models::Model> model, const uint64_t seed) {
  switch (plant) {
    case Plant::kNone:
    case Plant::kLostCancel:
    case Plant::kScopeIgnored:
    case Plant::kNoisePosition:
      return model;
    case Plant::kStalePage:
    case Plant::kDirtySlot:
    case Plant::kRowMixup:
      return std::make_unique<PlantedMemory>(plant, std::move(model), seed);
    case Plant::kNoRollback:
    case Plant::kOneTooMany:
    case Plant::kAcceptsWrong:
    case Plant::kDraftPublished:
      return PlantInSpeculation(plant, std::move(model), seed);
    case Plant::kLayerNotRead:
    case Plant::kReusedBeforeWritten:
    case Plant::kOthersStream:
      return PlantInSlowTier(plant, std::move(model), seed);
    default:
      return PlantInCache(plant, std::move(model), seed);
  }
}

}  // namespace invar::sim
