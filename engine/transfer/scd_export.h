// ScdExport: the codes of one prefix, made while its producer runs it. It watches what enters the layers, row after
// row, and looks at pages and state where a span ends; what it gives is final, so it can go out while the rest still
// runs. A prefix that is run again after a preemption gives nothing twice. Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/scd_profiles.h"
#include "engine/transfer/scd_payload.h"

namespace invar::engine {

class ScdExport final : public models::LayerObserver {
 public:
  // Of the first `tokens` tokens of a sequence. Requires: held->sends.
  ScdExport(std::shared_ptr<const HeldProfile> held, size_t point, int32_t tokens);

  // Where the span that begins at `computed` must end at the latest: a state that is mapped is looked at there.
  int32_t SpanEnd(int32_t computed) const;
  // The next span begins there.
  void Begin(const int32_t first) { first_ = first; }
  void Inputs(int32_t layer, const kernels::ConstF32View& residual, const kernels::Activations& normed) override;
  void Scanned(int32_t /*layer*/, const kernels::ConstF32View& /*qkv*/) override {}
  // After a span: `computed` tokens have run. What became certain by it.
  std::vector<CodedPart> Ran(const ScdSequence& sequence, int32_t computed);

 private:
  struct Layer {
    ScdRowSource source = ScdRowSource::kNone;
    ScdTail tail = {};       // Of kMapState.
    int64_t rows = 0;        // That were seen.
    FloatRows inputs = {};   // Of the tail, as far as it has run.
    bool has_state = false;  // The mapped state has gone out.
    std::vector<std::byte> ready = {};
  };

  const ScdPoint& point() const { return held_->profile.points[point_]; }
  void FinishLayer(size_t layer, const ScdSequence& sequence);

  // Set at construction.
  const std::shared_ptr<const HeldProfile> held_;
  const size_t point_;
  const int32_t tokens_;

  std::vector<Layer> layers_;
  int32_t first_ = 0;
  bool is_whole_ = false;
};

}  // namespace invar::engine
