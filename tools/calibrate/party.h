// One model of a pair with the memory of a few sequences: reads tokens, and lets what its layers read be looked at.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/zeroed_memory.h"
#include "engine/transfer/scd_prefix.h"
#include "models/model.h"
#include "tools/calibrate/taps.h"

namespace invar::calibrate {

struct PartyLimits {
  int32_t sequences = 1;
  int32_t checkpoints = 0;  // Slots beside those of the sequences.
  int32_t tokens_max = 0;   // Of a sequence.
  int32_t rows_max = 0;     // Of a forward and its logits, as the model was loaded.
};

class Party {
 public:
  using OnRow = std::function<void(int64_t row, std::span<const float> logits)>;

  // Errors: UNIMPLEMENTED for what SCD does not know (windows, a multi-token head, no layers); INVALID_ARGUMENT beyond
  // the model's positions; RESOURCE_EXHAUSTED. Requires: `model` outlives this.
  static StatusOr<std::unique_ptr<Party>> Make(models::Model& model, const PartyLimits& limits);

  models::Model& model() const { return model_; }
  const models::ModelSpec& spec() const { return model_.spec(); }
  int32_t rows_max() const { return limits_.rows_max; }
  // Pages and slot of sequence `index`.
  engine::ScdSequence sequence(int32_t index) const;
  // The slot of checkpoint `index`.
  SlotId checkpoint(int32_t index) const { return SlotId(limits_.sequences + index); }

  // Empties the state of a sequence: its next token is the first.
  void Restart(int32_t sequence);
  struct Watch {
    LayerTap* layers = nullptr;
    QueryTap* queries = nullptr;
    std::span<const models::StateCopy> checkpoints = {};
    OnRow on_row = {};  // Empty: no logits.
  };
  // Reads `tokens`, the first at position `first`.
  void Read(int32_t sequence, std::span<const TokenId> tokens, int64_t first, const Watch& watch);

  std::span<std::byte> slot(SlotId slot) const;
  // Pages and state of one sequence become those of another.
  void Copy(int32_t from, int32_t to);

 private:
  Party(models::Model& model, const PartyLimits& limits) : model_(model), limits_(limits) {}

  models::Model& model_;
  const PartyLimits limits_;
  std::vector<std::vector<PageId>> pages_;  // Of each sequence: one piece of the memory.
  ZeroedMemory page_memory_;
  ZeroedMemory state_memory_;
};

}  // namespace invar::calibrate
