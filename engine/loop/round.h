// Round: where one sequence that is away stands between two verifies (speculate/stagger.h has the picture).
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/slow/layer_streams.h"
#include "engine/speculate/stagger.h"

namespace invar::engine {

struct Round {
  bool draft_ended = false;  // Its drafter has nothing to add.
  int64_t queued = 0;        // Place in the queue for the link; 0: it does not ask for its verify yet.
  std::unique_ptr<LayerStream> stream = nullptr;

  RoundPhase phase() const {
    if (stream != nullptr) return stream->IsReady() ? RoundPhase::kFetched : RoundPhase::kFetching;
    return queued > 0 ? RoundPhase::kQueued : RoundPhase::kDraft;
  }
};

}  // namespace invar::engine
