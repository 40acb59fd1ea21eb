// What a way of sending costs in answers: the consumer's cache is really made from the payload's bytes, held-out
// suffixes are run on it, and their logits are compared with those behind the consumer's own prefill.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/transfer/scd_payload.h"
#include "tools/calibrate/party.h"
#include "tools/calibrate/windows.h"

namespace invar::calibrate {

struct Trial {
  engine::ScdPoint point;
  std::optional<size_t> alone;  // Only this layer is sent; the others are the consumer's own.
};

struct TrialResult {
  engine::ScdQuality quality;
  std::vector<double> layer_errors;  // Relative, of K and V or of the state; 0 for layers that were not sent.
  int64_t payload_bytes = 0;         // Of the last window.
};

// Means over windows, a result a trial. The prefix is the window's but for its last token, which the consumer reads
// itself, as in a hand-off. Requires: trials hold CheckScdPoint; `producer` has a sequence and a checkpoint for every
// tail that occurs; `consumer` has two sequences. `progress` is called once a window and trial.
std::vector<TrialResult> Measure(Party& producer, Party& consumer, const engine::ScdProfile& profile,
                                 std::span<const Trial> trials, std::span<const Window> windows,
                                 const std::function<void()>& progress);

}  // namespace invar::calibrate
