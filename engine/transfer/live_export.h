// LiveExport: a prefix that is given away while it runs. It watches the spans of its sequence and pushes what became
// certain into the sequence's sink, a kind for each form that a prefix goes out in.
//   Begin (a span) -> Inputs (of each layer) -> Ran (in all layers), span after span
// What it pushed is final, as LayerObserver promises of layers that a forward has passed, and a prefix that is run
// again after a preemption gives nothing twice. Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "engine/request.h"
#include "models/model.h"

namespace invar::engine {

// Where the KV and the state of a sequence lie now. Borrowed.
struct SequencePlace {
  models::SequenceMemory memory;
  std::span<const PageId> pages;
  SlotId state;
};

class LiveExport : public models::LayerObserver {
 public:
  // A span's tokens are [first, end); KV of the first `there` tokens lies in the pages before it runs, and stays.
  struct Range {
    int32_t first = 0;
    int32_t there = 0;
    int32_t end = 0;
  };
  // Where the span that begins at `computed` must end at the latest.
  virtual int32_t SpanEnd(int32_t computed) const = 0;
  // A span is about to run. Requires: `place` holds until its forward has ended.
  virtual void Begin(const SequencePlace& place, const Range& span) = 0;
  // After the step: `computed` tokens have run in all layers.
  virtual void Ran(const SequencePlace& place, int32_t computed) = 0;
  void Scanned(int32_t /*layer*/, const kernels::ConstF32View& /*qkv*/) override {}
};

// What `request` wants of its prompt; null: nothing. `step_tokens`: of one sequence in one step at most. Requires:
// `model`, which runs it, and `sink` outlive it.
std::unique_ptr<LiveExport> MakeLiveExport(const Request& request, models::Model& model, int32_t step_tokens,
                                           EventSink& sink);

}  // namespace invar::engine
