// Mixer and Mlp: the two halves of a layer. Each declares its tensors when made, takes views of the packed weights when
// bound, and then adds its output to the residual stream. One file a kind, in mixers/ and mlps/.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "models/model.h"
#include "models/stack/host_rows.h"
#include "models/stack/scratch.h"
#include "models/stack/stack_plan.h"
#include "models/weights/loader.h"
#include "models/weights/weight_plan.h"

namespace invar::models {

// One forward as layers see it: T rows of all spans. The spans' layer-dependent fields are written by each mixer.
struct ForwardPass {
  kernels::Backend& backend;
  Scratch& scratch;
  const SequenceMemory& memory;
  std::span<const ForwardSpan> spans;
  int64_t rows = 0;
  kernels::ConstF32View cos;  // [T, rotary_dims / 2]
  kernels::ConstF32View sin;
  std::span<kernels::KvSpan> kv_spans;
  std::span<kernels::StateSpan> state_spans;
  std::span<kernels::EmittedState> emitted;  // What state_spans' `emit` are views of: span after span.
  const ModelSpec& spec;
  HostRows& host_rows;
  std::vector<kernels::CopyPiece>& pieces;  // Of the copy that is being put together.
  bool keys_only = false;  // Mixers leave KV and states behind, and add nothing to the residual stream.
};

// Recurrent states going over logged rows, as layers see it: T rows of all advances.
struct AdvancePass {
  kernels::Backend& backend;
  Scratch& scratch;
  const SequenceMemory& memory;
  std::span<const StateAdvance> advances;
  int64_t rows = 0;
  std::span<kernels::StateSpan> state_spans;
  std::span<kernels::EmittedState> emitted;
  const ModelSpec& spec;
  std::vector<kernels::CopyPiece>& pieces;
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual void Bind(const LoadedWeights& weights) = 0;
  // residual += mixer(x). x [T, hidden], residual [T, hidden]. Effects: KV pages and states of the spans.
  virtual void Run(ForwardPass& pass, const kernels::Activations& x, kernels::F32View residual) = 0;
  // The layer's states go over rows that Run logged; at most Run's scratch. Mixers without states have nothing to do.
  virtual void Advance(AdvancePass&) {}
  // Takes what Run takes of `scratch` for `rows` rows.
  virtual void Measure(Scratch& scratch, const kernels::Numerics& numerics, int64_t rows) const = 0;
  virtual void AddWork(const LoadedWeights& weights, StepWork& work) const = 0;
  // Operations of the projection that Run with keys_only needs, a token.
  virtual int64_t InputFlops(const LoadedWeights& weights) const = 0;
};

class Mlp {
 public:
  virtual ~Mlp() = default;
  virtual void Bind(const LoadedWeights& weights) = 0;
  virtual void Run(ForwardPass& pass, const kernels::Activations& x, kernels::F32View residual) = 0;
  virtual void Measure(Scratch& scratch, const kernels::Numerics& numerics, int64_t rows) const = 0;
  virtual void AddWork(const LoadedWeights& weights, StepWork& work) const = 0;
};

inline int64_t MatrixFlops(const LoadedWeights& weights, const MatrixId id) {
  const Weight& weight = weights.matrix(id);
  return 2 * weight.main.rows * weight.main.cols * (weight.has_residual() ? 2 : 1);
}

// Adds one matrix that every token multiplies with.
inline void AddMatrixWork(const LoadedWeights& weights, const MatrixId id, StepWork& work) {
  work.weight_bytes += weights.matrix(id).bytes;
  work.matmul_flops += MatrixFlops(weights, id);
}

inline kernels::Activations RowsOf(kernels::Activations view, const int64_t begin, const int64_t count) {
  view.data = view.row_bytes(begin);
  view.rows = count;
  return view;
}

// Calls tell(span, its first row, its rows) for every span of the pass whose layers are observed.
template <typename Tell>
void ForObservedSpans(const ForwardPass& pass, const Tell& tell) {
  for (size_t i = 0; i < pass.spans.size(); ++i) {
    const kernels::KvSpan& rows = pass.kv_spans[i];
    if (pass.spans[i].layer_observer != nullptr) tell(pass.spans[i], rows.row_begin, rows.rows);
  }
}

}  // namespace invar::models
