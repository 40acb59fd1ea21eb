// Runner: turns a step's spans into one forward of the model. It decides nothing.
// Threads: engine thread only.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cache/page_pool.h"
#include "cache/slot_pool.h"
#include "engine/sequence.h"
#include "engine/step.h"
#include "models/model.h"

namespace invar::engine {

class Runner {
 public:
  // Requires: the pools outlive this.
  Runner(std::unique_ptr<models::Model> model, const cache::PagePool& pages, const cache::SlotPool& slots);

  const models::Model& model() const { return *model_; }

  // `sequences[i]` runs `spans[i]`. Effects: writes KV and states; sequences are advanced by the caller. The results
  // are valid until the next call. Requires: memory of every span is held; the spans of one call are of different
  // sequences.
  std::span<const SpanResult> Run(std::span<const Span> spans, std::span<Sequence* const> sequences);

 private:
  const std::unique_ptr<models::Model> model_;
  const cache::PagePool& pages_;
  const cache::SlotPool& slots_;
  std::vector<models::ForwardSpan> batch_;  // Kept between calls: a step allocates nothing here.
  std::vector<SpanResult> results_;
};

}  // namespace invar::engine
