// Runner: turns a step's spans into one forward of the model. It decides nothing.
// Threads: engine thread only.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cache/cache_memory.h"
#include "engine/sequence.h"
#include "engine/step.h"
#include "models/model.h"

namespace invar::engine {

// Who runs a span, and the states to keep on the way.
struct SpanWork {
  Sequence* sequence = nullptr;
  std::vector<models::StateCopy> checkpoints;
};

class Runner {
 public:
  explicit Runner(std::unique_ptr<models::Model> model) : model_(std::move(model)) {}

  const models::Model& model() const { return *model_; }

  // `work[i].sequence` runs `spans[i]`. Effects: writes KV and states, those to emit too; sequences are advanced by the
  // caller. The results are valid until the next call. Requires: memory of every span is held in `memory`; the spans of
  // one call are of different sequences.
  std::span<const SpanResult> Run(const cache::CacheMemory& memory, std::span<const Span> spans,
                                  std::span<const SpanWork> work);

 private:
  const std::unique_ptr<models::Model> model_;
  std::vector<models::ForwardSpan> batch_;  // Kept between calls: a step allocates nothing here.
  std::vector<SpanResult> results_;
};

}  // namespace invar::engine
