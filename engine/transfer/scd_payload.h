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

}  // namespace invar::engine
