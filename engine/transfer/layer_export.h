// LayerExport: a prefix that goes out as it is while it runs. Of a long one every layer goes out as soon as a forward
// has passed it, so that the last step, which leaves the states to send, is over for most of them while the rest still
// runs.
//   pieces   of whole steps, counted from the last page: the last step is a whole one, beneath which most can be sent
//   layers   of a piece in the order of the stack (LayersOf), so that they come as the wire's plan has them (ChunkPlan)
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/transfer/live_export.h"
#include "engine/transfer_protocol.h"

namespace invar::engine {

class LayerExport final : public LiveExport {
 public:
  // The pages from `first_page` on and the state of a sequence's first `tokens` tokens, which runs at most
  // `step_tokens` of them in a step. Requires: `sink` outlives this.
  LayerExport(const models::ModelSpec& spec, int32_t first_page, int32_t tokens, int32_t step_tokens, EventSink& sink);

  // Spans end where pieces do.
  int32_t SpanEnd(int32_t computed) const override;
  void Begin(const SequencePlace& place, const Range& span) override;
  void Inputs(int32_t layer, const kernels::ConstF32View& residual, const kernels::Activations& normed) override;
  void Ran(const SequencePlace& place, int32_t computed) override;

 private:
  struct Layer {
    LayerPlace place;
    int32_t next_page = 0;
    bool has_state = false;  // It has gone out.
  };
  // Of the first `layers` layers, what `computed` tokens have made certain goes out.
  void Give(const SequencePlace& place, size_t layers, int32_t computed);

  // Set at construction.
  const int64_t page_bytes_;
  const int64_t state_bytes_;
  const int32_t tokens_;
  const int32_t piece_pages_;
  const bool within_steps_;
  EventSink& sink_;

  std::vector<Layer> layers_;
  SequencePlace place_;  // Of the span that runs,
  int32_t end_ = 0;      // and where that ends.
};

}  // namespace invar::engine
