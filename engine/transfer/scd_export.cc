// See scd_export.h.
#include "engine/transfer/scd_export.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/bf16.h"

namespace invar::engine {
namespace {

// Rows [begin, rows) of what a layer reads, as floats.
FloatRows FloatsOf(const kernels::Activations& from, const int64_t begin) {
  FloatRows out(from.rows - begin, from.cols);
  for (int64_t r = begin; r < from.rows; ++r) {
    float* const to = out.row(r - begin);
    if (from.dtype == kernels::DType::kF32) {
      std::copy_n(reinterpret_cast<const float*>(from.row_bytes(r)), from.cols, to);
    } else {
      const auto* const row = reinterpret_cast<const uint16_t*>(from.row_bytes(r));
      std::transform(row, row + from.cols, to, [](const uint16_t bits) { return kernels::FloatFromBf16(bits); });
    }
  }
  return out;
}

}  // namespace

ScdExport::ScdExport(models::Model& model, CodedExport coded, const int32_t tokens, EventSink& sink)
    : model_(model), coded_(std::move(coded)), tokens_(tokens), sink_(sink), layers_(profile().shape.layers.size()) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].source = ScdRowSourceOf(this->point(), i);
    const ScdLayerPlan& plan = this->point().layers[i];
    if (plan.mode == ScdMode::kMapState) layers_[i].tail = ScdTailOf(profile().shape.layers[i], plan, tokens_);
  }
}

int32_t ScdExport::SpanEnd(const int32_t computed) const {
  int32_t end = INT32_MAX;
  for (const Layer& layer : layers_) {
    if (layer.tail.from > computed) end = std::min(end, static_cast<int32_t>(layer.tail.from));
  }
  return end;
}

void ScdExport::Inputs(const int32_t layer, const kernels::ConstF32View& residual, const kernels::Activations& normed) {
  Layer& to = layers_[static_cast<size_t>(layer)];
  const int64_t end = std::min<int64_t>(tokens_, first_ + normed.rows);
  if (end <= to.rows) return;  // Run again.
  Check(first_ <= to.rows, "rows are seen in order", first_, to.rows);
  const int64_t skip = to.rows - first_;
  if (to.source == ScdRowSource::kInput) {
    EncodeScdRows(profile(), point(), static_cast<size_t>(layer), FloatsOf(normed, skip).view(), to.ready);
  } else if (to.source == ScdRowSource::kResidual) {
    EncodeScdRows(profile(), point(), static_cast<size_t>(layer), residual.Rows(skip, end - first_ - skip), to.ready);
  } else if (point().layers[static_cast<size_t>(layer)].mode == ScdMode::kMapState && end > to.tail.begin) {
    const FloatRows rows = FloatsOf(normed, std::max(skip, to.tail.begin - first_));
    to.inputs.values.insert(to.inputs.values.end(), rows.values.begin(), rows.values.end());
    to.inputs.rows += rows.rows;
    to.inputs.cols = rows.cols;
  }
  to.rows = end;
}

void ScdExport::Ran(const SequencePlace& place, const int32_t computed) {
  if (is_whole_) return;
  const ScdSequence sequence{.model = model_, .memory = place.memory, .pages = place.pages, .state = place.state};
  PrefixCodesEvent event;
  is_whole_ = computed >= tokens_;
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const bool maps = point().layers[i].mode == ScdMode::kMapState;
    if (maps && !layer.tail.whole && !layer.has_state && computed == layer.tail.from) {
      EncodeScdState(profile(), i, sequence, sequence.state, layer.ready);
      layer.has_state = true;
    }
    if (is_whole_) FinishLayer(i, sequence);
    if (!layer.ready.empty()) event.parts.push_back({.layer = i, .bytes = std::exchange(layer.ready, {})});
  }
  if (!event.parts.empty()) sink_.Push(std::move(event));
}

void ScdExport::FinishLayer(const size_t layer, const ScdSequence& sequence) {
  Layer& of = layers_[layer];
  if (of.source != ScdRowSource::kNone) return;
  if (point().layers[layer].mode == ScdMode::kMapState) {
    Check(of.tail.whole || of.has_state, "the state before a tail was seen", layer, of.tail.from);
    EncodeScdRows(profile(), point(), layer, of.inputs.view(), of.ready);
    of.inputs = {};
    return;
  }
  const ScdProducerPrefix prefix{
      .sequence = sequence, .tokens = tokens_, .inputs = {}, .residuals = {}, .state_at = [&](int64_t) {
        return sequence.state;
      }};
  EncodeScdLayer(profile(), point(), layer, prefix, of.ready);
}

}  // namespace invar::engine
