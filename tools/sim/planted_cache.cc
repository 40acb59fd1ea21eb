// Bugs that a prefix cache can have, done to the memory around a forward: each does what the buggy cache would do.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/numerics.h"
#include "tools/sim/planted_model.h"

namespace invar::sim {
namespace {

using kernels::kPageTokens;
using models::ForwardSpan;
using models::SequenceMemory;

int32_t EndOf(const ForwardSpan& span) { return span.first.value() + static_cast<int32_t>(span.tokens.size()); }

class WrongCheckpoint final : public PlantedModel {
 public:
  using PlantedModel::PlantedModel;

 private:
  void Before(const SequenceMemory& memory, const ForwardSpan& span) override {
    if (!IsResumed(span)) return;
    const auto other = std::find_if(states_.rbegin(), states_.rend(),
                                    [&](const auto& state) { return state.first != span.first.value(); });
    if (other != states_.rend()) std::memcpy(StateAt(memory, span.state), other->second.data(), spec().state_bytes);
  }
  void After(const SequenceMemory& memory, const ForwardSpan& span) override {
    for (const models::StateCopy& copy : span.checkpoints) {
      const std::byte* const state = StateAt(memory, copy.to);
      states_.emplace_back(copy.after.value(), Bytes(state, state + spec().state_bytes));
    }
  }

  std::vector<std::pair<int32_t, Bytes>> states_;  // Position and bytes of all checkpoints so far.
};

class SharedSlot final : public PlantedModel {
 public:
  using PlantedModel::PlantedModel;

 private:
  void Before(const SequenceMemory&, const ForwardSpan& span) override {
    if (span.first.value() == 0 || IsResumed(span)) shared_.erase(span.state.value());
  }
  void After(const SequenceMemory& memory, const ForwardSpan& span) override {
    for (auto& [slot, copies] : shared_) std::erase(copies, span.state);
    for (const models::StateCopy& copy : span.checkpoints) shared_[span.state.value()].push_back(copy.to);
    for (const SlotId to : shared_[span.state.value()]) {
      std::memcpy(StateAt(memory, to), StateAt(memory, span.state), spec().state_bytes);
    }
  }

  std::map<int32_t, std::vector<SlotId>> shared_;  // Running slot: checkpoints that are the same memory.
};

class SharedPage final : public PlantedModel {
 public:
  using PlantedModel::PlantedModel;

 private:
  void Before(const SequenceMemory& memory, const ForwardSpan& span) override {
    const int32_t shared = span.kv_from.value() % kPageTokens;
    if (!IsResumed(span) || shared == 0 || span.kv_from.value() / kPageTokens < span.away_pages) return;
    const PageId copy = PageOf(span, span.kv_from.value() / kPageTokens);
    const auto original = std::find_if(pages_.begin(), pages_.end(), [&](const PageId page) {
      // Entries of 8 bytes, those of the first layer first; equal ones have equal prefixes.
      return page != copy && std::memcmp(PageAt(memory, page), PageAt(memory, copy), size_t{8} * shared) == 0;
    });
    if (original != pages_.end()) originals_.insert_or_assign(copy, *original);
  }
  void After(const SequenceMemory& memory, const ForwardSpan& span) override {
    for (int32_t p = span.first.value() / kPageTokens; p * kPageTokens < EndOf(span); ++p) {
      const PageId page = PageOf(span, p);
      if (std::find(pages_.begin(), pages_.end(), page) == pages_.end()) pages_.push_back(page);
      const auto original = originals_.find(page);
      if (original == originals_.end()) continue;
      std::memcpy(PageAt(memory, original->second), PageAt(memory, page), spec().page_bytes);
    }
  }

  std::vector<PageId> pages_;           // Written so far.
  std::map<PageId, PageId> originals_;  // Copy: what it was copied from.
};

class StaleKv final : public PlantedModel {
 public:
  using PlantedModel::PlantedModel;

 private:
  void Before(const SequenceMemory& memory, const ForwardSpan& span) override {
    if (!IsResumed(span)) return;
    for (int32_t p = span.away_pages; p < span.kv_from.value() / kPageTokens; ++p) {
      const PageId page = PageOf(span, p);
      const auto old = before_.find(page.value());
      if (old != before_.end()) std::memcpy(PageAt(memory, page), old->second.data(), old->second.size());
    }
  }
  void After(const SequenceMemory& memory, const ForwardSpan& span) override {
    for (int32_t p = span.first.value() / kPageTokens; p * kPageTokens < EndOf(span); ++p) {
      const int32_t id = PageOf(span, p).value();
      const bool new_owner = p * kPageTokens >= std::max(span.first.value(), span.kv_from.value());
      if (new_owner && pages_.contains(id)) before_[id] = pages_[id];
      const std::byte* const page = PageAt(memory, PageOf(span, p));
      pages_[id].assign(page, page + spec().page_bytes);
    }
  }

  std::map<int32_t, Bytes> pages_;   // As last written.
  std::map<int32_t, Bytes> before_;  // As the owner before left them.
};

class LateState final : public PlantedModel {
 public:
  using PlantedModel::PlantedModel;

 private:
  std::span<const ForwardSpan> Spans(const std::span<const ForwardSpan> spans) override {
    spans_.assign(spans.begin(), spans.end());
    copies_.clear();
    for (ForwardSpan& span : spans_) {
      std::vector<models::StateCopy>& copies = copies_.emplace_back(span.checkpoints.begin(), span.checkpoints.end());
      int32_t limit = EndOf(span);
      for (auto copy = copies.rbegin(); copy != copies.rend(); ++copy) {
        copy->after = Position(std::min(copy->after.value() + 1, limit));
        limit = copy->after.value() - 1;
      }
    }
    for (size_t i = 0; i < spans_.size(); ++i) spans_[i].checkpoints = copies_[i];
    return spans_;
  }

  std::vector<ForwardSpan> spans_;
  std::vector<std::vector<models::StateCopy>> copies_;
};

}  // namespace

std::unique_ptr<models::Model> PlantInCache(const Plant plant, std::unique_ptr<models::Model> model,
                                            const uint64_t seed) {
  switch (plant) {
    case Plant::kWrongCheckpoint:
      return std::make_unique<WrongCheckpoint>(std::move(model), seed);
    case Plant::kSharedSlot:
      return std::make_unique<SharedSlot>(std::move(model), seed);
    case Plant::kSharedPage:
      return std::make_unique<SharedPage>(std::move(model), seed);
    case Plant::kStaleKv:
      return std::make_unique<StaleKv>(std::move(model), seed);
    case Plant::kLateState:
      return std::make_unique<LateState>(std::move(model), seed);
    default:
      Check(false, "a plant of the prefix cache", static_cast<int>(plant));
      return model;
  }
}

}  // namespace invar::sim
