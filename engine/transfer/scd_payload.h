// One layer of a prefix on its way: bytes out of what the producer computed, and the consumer's KV or state out of the
// bytes. Layers are independent but for groups that are recomputed together, so they may cross in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/transfer/scd_prefix.h"
#include "engine/transfer/scd_profile.h"

namespace invar::engine {

// A prefix of the producer, all its tokens.
struct ScdProducerPrefix {
  ScdSequence sequence;
  int64_t tokens = 0;
  std::span<const FloatRows> inputs;     // Of each layer: normalised input [tokens, hidden].
  std::span<const FloatRows> residuals;  // Of each layer: what entered it [tokens, hidden]; empty: kept of none.
  // The slot that holds the state after `position` tokens.
  std::function<SlotId(int64_t position)> state_at;
};

// Appends layer `layer`'s part of the payload: ScdPayloadBytes of it. Requires: CheckScdPoint. Threads: any.
void EncodeScdLayer(const ScdProfile& profile, const ScdPoint& point, size_t layer, const ScdProducerPrefix& prefix,
                    std::vector<std::byte>& out);

// --- The same, while the prefix still runs ---

// What a row of a layer's payload is made of, where it needs nothing but that row.
enum class ScdRowSource : uint8_t { kNone, kInput, kResidual };
ScdRowSource ScdRowSourceOf(const ScdPoint& point, size_t layer);

// The end of a prefix that a recurrent layer runs again: the mapped state is that after `from` tokens.
struct ScdTail {
  int64_t begin = 0;   // First row whose input is sent.
  int64_t from = 0;    // First row that the recurrence runs.
  bool whole = false;  // All rows are sent, and no state.
};
ScdTail ScdTailOf(const ScdLayerShape& shape, const ScdLayerPlan& plan, int64_t tokens);

// Appends rows of a layer that has a row source, or inputs of a tail.
void EncodeScdRows(const ScdProfile& profile, const ScdPoint& point, size_t layer, const kernels::ConstF32View& rows,
                   std::vector<std::byte>& out);
// Appends the mapped state of a recurrent layer, as it is in `slot`. Requires: the plan is kMapState.
void EncodeScdState(const ScdProfile& profile, size_t layer, const ScdSequence& sequence, SlotId slot,
                    std::vector<std::byte>& out);

// A prefix of the consumer that is being made. What its pages and slot held before does not matter.
struct ScdConsumerPrefix {
  ScdSequence sequence;
  std::span<const TokenId> tokens;
  int64_t rows_max = 0;  // Of one forward, as the model was loaded.
};

// Makes `layer` of the prefix from its payload; of a group that is recomputed, the whole group at its first layer.
// Effects: pages and slot of the sequence. Errors: DATA_LOSS where the payload has another size than the plan says.
// Requires: CheckScdPoint. Threads: the engine's.
Status DecodeScdLayer(const ScdProfile& profile, const ScdPoint& point, size_t layer,
                      std::span<const std::byte> payload, const ScdConsumerPrefix& prefix);

// The same in parts of at most prefix.rows_max rows, so that nothing else waits for long: the part that begins at row
// `first`, 0 at first; gives where the next one begins, the number of tokens after the last. Tails, states and the
// baselines that only copy are one part. Errors, effects, threads: as DecodeScdLayer.
StatusOr<int64_t> DecodeScdPart(const ScdProfile& profile, const ScdPoint& point, size_t layer,
                                std::span<const std::byte> payload, const ScdConsumerPrefix& prefix, int64_t first);

}  // namespace invar::engine
