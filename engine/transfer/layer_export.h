// LayerExport: a prefix that is given away while it is run. Of a long one every layer goes out as soon as a forward has
// passed it, so that the last step, which leaves the states to send, is over for most of them while the rest still
// runs. What went out does not change any more, and a prefix that is run again after a preemption gives nothing twice.
//   pieces   of whole steps, counted from the last page: the last step is a whole one, beneath which most can be sent
//   layers   of a piece in the order of the stack (LayersOf), so that they come as the wire's plan has them (ChunkPlan)
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/lease.h"
#include "engine/request.h"
#include "engine/transfer_frames.h"
#include "models/model.h"

namespace invar::engine {

class LayerExport final : public models::LayerObserver {
 public:
  // Where the sequence lies now.
  struct Place {
    models::SequenceMemory memory;
    const cache::PrefixLease* lease = nullptr;
  };
  // The pages from `first_page` on and the state of a sequence's first `tokens` tokens, which runs at most
  // `step_tokens` of them in a step. Requires: `sink` outlives this.
  LayerExport(const models::ModelSpec& spec, int32_t first_page, int32_t tokens, int32_t step_tokens, EventSink& sink);

  // Where the span that begins at `computed` must end at the latest: at the end of its piece.
  int32_t SpanEnd(int32_t computed) const;
  // A span is about to run up to `end`; KV of the first `there` tokens lies in the pages and stays as it is.
  void Begin(const Place& place, int32_t there, int32_t end);
  void Inputs(int32_t layer, const kernels::ConstF32View& residual, const kernels::Activations& normed) override;
  void Scanned(int32_t /*layer*/, const kernels::ConstF32View& /*qkv*/) override {}
  // After the step: `computed` tokens have run in all layers.
  void Ran(const Place& place, int32_t computed);

 private:
  struct Layer {
    LayerPlace place;
    int32_t next_page = 0;
    bool has_state = false;  // It has gone out.
  };
  // Of the first `layers` layers, what `computed` tokens have made certain goes out.
  void Give(const Place& place, size_t layers, int32_t computed);

  // Set at construction.
  const int64_t page_bytes_;
  const int64_t state_bytes_;
  const int32_t tokens_;
  const int32_t piece_pages_;
  const bool within_steps_;
  EventSink& sink_;

  std::vector<Layer> layers_;
  Place place_;      // Of the span that runs,
  int32_t end_ = 0;  // and where that ends.
};

}  // namespace invar::engine
