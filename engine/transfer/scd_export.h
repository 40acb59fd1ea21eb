// ScdExport: a prefix that goes out in codes for another model while it runs. It watches what enters the layers, row
// after row, and looks at pages and state where a span ends. Threads: engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/scd_profiles.h"
#include "engine/transfer/live_export.h"
#include "engine/transfer/scd_payload.h"

namespace invar::engine {

class ScdExport final : public LiveExport {
 public:
  // Of the first `tokens` tokens of a sequence. Requires: coded.held->sends; `model`, which runs it, and `sink` outlive
  // this.
  ScdExport(models::Model& model, CodedExport coded, int32_t tokens, EventSink& sink);

  // Spans end where a state that is mapped is looked at.
  int32_t SpanEnd(int32_t computed) const override;
  void Begin(const SequencePlace& /*place*/, const Range& span) override { first_ = span.first; }
  void Inputs(int32_t layer, const kernels::ConstF32View& residual, const kernels::Activations& normed) override;
  void Ran(const SequencePlace& place, int32_t computed) override;

 private:
  struct Layer {
    ScdRowSource source = ScdRowSource::kNone;
    ScdTail tail = {};       // Of kMapState.
    int64_t rows = 0;        // That were seen.
    FloatRows inputs = {};   // Of the tail, as far as it has run.
    bool has_state = false;  // The mapped state has gone out.
    std::vector<std::byte> ready = {};
  };

  const ScdProfile& profile() const { return coded_.held->profile; }
  const ScdPoint& point() const { return profile().points[coded_.point]; }
  void FinishLayer(size_t layer, const ScdSequence& sequence);

  // Set at construction.
  models::Model& model_;
  const CodedExport coded_;
  const int32_t tokens_;
  EventSink& sink_;

  std::vector<Layer> layers_;
  int32_t first_ = 0;
  bool is_whole_ = false;
};

}  // namespace invar::engine
