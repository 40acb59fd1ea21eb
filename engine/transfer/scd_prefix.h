// The cache of one sequence as SCD reads and writes it: rows of keys without rope, of values, and recurrent states.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/transfer/scd_rows.h"
#include "models/model.h"

namespace invar::engine {

// Where a sequence's KV and state lie. Borrowed.
struct ScdSequence {
  models::Model& model;
  models::SequenceMemory memory;
  std::span<const PageId> pages;
  SlotId state;
};

// Keys (before rope) and values of some tokens of one layer: [tokens, kv_heads * head_dim] each.
struct ScdKv {
  FloatRows keys;
  FloatRows values;
};

// Of tokens [first, first + count); `layer` of the attention layers. Threads: any, with the sequence at rest.
ScdKv ReadKv(const ScdSequence& sequence, int32_t layer, int64_t first, int64_t count);
// Effects: overwrites the rows of tokens [first, ...) in the pages, rope put on.
void WriteKv(const ScdSequence& sequence, int32_t layer, int64_t first, ScdKv kv);
// The same rows as the pages hold them, rope on.
ScdKv ReadTurnedKv(const ScdSequence& sequence, int32_t layer, int64_t first, int64_t count);
void WriteTurnedKv(const ScdSequence& sequence, int32_t layer, int64_t first, const ScdKv& kv);

// The recurrent part and the convolution's part of slot `slot`, of the `layer`-th recurrent layer.
std::span<float> RecurrentState(const ScdSequence& sequence, size_t layer, SlotId slot);
std::span<float> ConvState(const ScdSequence& sequence, size_t layer, SlotId slot);

}  // namespace invar::engine
