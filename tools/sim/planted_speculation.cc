// Bugs that speculation can have, done to what goes into the model and what comes out of it: each does what the buggy
// engine would do.
#include <algorithm>
#include <cstring>
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
using models::StateAdvance;

// Drafts are known by their logs, which models with states have.
bool IsDrafted(const ForwardSpan& span) { return !span.state_log.empty(); }

class NoRollback final : public PlantedModel {
 public:
  using PlantedModel::PlantedModel;

 private:
  std::span<const ForwardSpan> Spans(const std::span<const ForwardSpan> spans) override {
    spans_.assign(spans.begin(), spans.end());
    for (ForwardSpan& span : spans_) span.state_log = {};
    return spans_;
  }
  std::span<const StateAdvance> Advances(std::span<const StateAdvance>) override { return {}; }

  std::vector<ForwardSpan> spans_;
};

class OneTooMany final : public PlantedModel {
 public:
  using PlantedModel::PlantedModel;

 private:
  std::span<const StateAdvance> Advances(const std::span<const StateAdvance> advances) override {
    advances_.assign(advances.begin(), advances.end());
    for (StateAdvance& advance : advances_) {
      const int64_t rows = static_cast<int64_t>(advance.log.size()) / spec().state_log_row_bytes;
      advance.rows = static_cast<int32_t>(std::min<int64_t>(rows, advance.rows + 1));
    }
    return advances_;
  }

  std::vector<StateAdvance> advances_;
};

// The first drafted token always wins.
class AcceptsWrong final : public PlantedModel {
 public:
  using PlantedModel::PlantedModel;

 private:
  std::span<const ForwardSpan> Spans(const std::span<const ForwardSpan> spans) override {
    drafted_.clear();
    int64_t row = 0;
    for (const ForwardSpan& span : spans) {
      if (IsDrafted(span) && span.tokens.size() > 1) drafted_.emplace_back(row, span.tokens[1]);
      row += span.logits_rows;
    }
    return spans;
  }
  kernels::ConstF32View Logits(const kernels::ConstF32View& logits) override {
    if (drafted_.empty()) return logits;
    rows_.assign(logits.data, logits.data + logits.rows * logits.stride);
    for (const auto& [row, token] : drafted_) rows_[static_cast<size_t>(row * logits.stride + token.value())] = 1e6F;
    return {rows_.data(), logits.rows, logits.cols, logits.stride};
  }

  std::vector<std::pair<int64_t, TokenId>> drafted_;
  std::vector<float> rows_;
};

// The first rejected row of a draft is kept where the right token's belongs.
class DraftPublished final : public PlantedModel {
 public:
  using PlantedModel::PlantedModel;

 private:
  struct Draft {
    int32_t first = 0;  // Of the span.
    std::vector<TokenId> tokens;
    std::vector<std::vector<Bytes>> entries;  // By row, then layer.
  };

  void After(const SequenceMemory& memory, const ForwardSpan& span) override {
    const int32_t first = span.first.value();
    if (const auto draft = drafts_.find(span.state.value()); draft != drafts_.end()) {
      const int32_t row = first - draft->second.first;
      const bool follows = row > 0 && row < static_cast<int32_t>(draft->second.tokens.size());
      if (follows && draft->second.tokens[static_cast<size_t>(row)] != span.tokens[0]) {
        for (int32_t layer = 0; layer < spec().attention_layers; ++layer) {
          const Bytes& entry = draft->second.entries[static_cast<size_t>(row)][static_cast<size_t>(layer)];
          std::memcpy(EntryAt(memory, span, layer, first), entry.data(), entry.size());
        }
      }
      drafts_.erase(draft);
    }
    if (!IsDrafted(span)) return;
    Draft& draft = drafts_[span.state.value()];
    draft.first = first;
    draft.tokens.assign(span.tokens.begin(), span.tokens.end());
    for (int32_t row = 0; row < static_cast<int32_t>(span.tokens.size()); ++row) {
      std::vector<Bytes>& layers = draft.entries.emplace_back();
      for (int32_t layer = 0; layer < spec().attention_layers; ++layer) {
        const std::byte* const entry = EntryAt(memory, span, layer, first + row);
        layers.emplace_back(entry, entry + kEntryBytes);
      }
    }
  }

  // As the model of hashes lays its pages out.
  static constexpr int64_t kEntryBytes = 8;
  std::byte* EntryAt(const SequenceMemory& memory, const ForwardSpan& span, const int32_t layer,
                     const int32_t position) const {
    return PageAt(memory, PageOf(span, position / kPageTokens)) +
           kEntryBytes * (layer * int64_t{kPageTokens} + position % kPageTokens);
  }

  std::map<int32_t, Draft> drafts_;  // By slot: the last span's.
};

}  // namespace

std::unique_ptr<models::Model> PlantInSpeculation(const Plant plant, std::unique_ptr<models::Model> model,
                                                  const uint64_t seed) {
  switch (plant) {
    case Plant::kNoRollback:
      return std::make_unique<NoRollback>(std::move(model), seed);
    case Plant::kOneTooMany:
      return std::make_unique<OneTooMany>(std::move(model), seed);
    case Plant::kAcceptsWrong:
      return std::make_unique<AcceptsWrong>(std::move(model), seed);
    case Plant::kDraftPublished:
      return std::make_unique<DraftPublished>(std::move(model), seed);
    default:
      Check(false, "a plant of speculation", static_cast<int>(plant));
      return model;
  }
}

}  // namespace invar::sim
