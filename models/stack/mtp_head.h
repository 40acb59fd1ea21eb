// MtpHead: the multi-token head that some checkpoints carry beside the stack: from the stack's hidden row at position t
// and the token at t + 1 it guesses the token at t + 2.
//   x = fc [norm_e(embedding of token t + 1) ; norm_h(hidden row t)];  one attention layer over its own KV;
//   logits = the stack's output matrix * norm(x)
// The hidden row is the stack's after its final norm; norm(x) stands for it where the head goes on from its own guess.
//
// KV of the pair (hidden row t, token t + 1) lies at position t + 1 of the pages: so what lies at a position depends on
// the tokens up to it alone, as of every other layer, and is shared, cached and resumed with them. Position 0 has no
// pair and is never seen. What a sequence's next pair needs, its last hidden row, is a part of its recurrent state,
// [hidden] f32, so it is logged, advanced, kept and resumed with it. Rope turns by where it lies: only distances
// matter. Source: Qwen3-Next and Qwen3.5 checkpoints, "mtp.*", wired as vLLM's qwen3_5_mtp.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/stack/layer.h"
#include "models/stack/stack_plan.h"
#include "models/weights/loader.h"
#include "models/weights/weight_files.h"
#include "models/weights/weight_plan.h"

namespace invar::models {

// Where its memory lies.
struct MtpPlace {
  int64_t page_offset_bytes = 0;
  int64_t state_offset_bytes = 0;  // Inside a slot.
  int64_t log_offset_bytes = 0;    // Inside a row of a state log.
};

// Why `files` have no head to serve; empty where they have one.
std::string WhyNoMtpHead(const StackPlan& plan, const WeightFiles& files);
// Bytes a page.
int64_t MtpPageBytes(const StackPlan& plan, const kernels::Backend& backend);

class MtpHead {
 public:
  MtpHead(const StackPlan& plan, const MtpPlace& place, WeightPlan& weights);

  void Bind(const LoadedWeights& weights);
  // Takes what a forward of `rows` rows takes of `scratch`.
  void Measure(Scratch& scratch, const kernels::Numerics& numerics, int64_t rows) const;
  // Takes its own memory for up to `rows` rows.
  void TakeMemory(Scratch& memory, const kernels::Numerics& numerics, int64_t rows);
  void AddWork(const LoadedWeights& weights, StepWork& work) const;

  // Where a forward, before Follow, leaves the hidden rows of its `rows` rows.
  kernels::Activations hidden(int64_t rows) const;

  // Rows of a forward or of guesses: views of at least pass.rows rows that it may overwrite.
  struct Rows {
    kernels::F32View x;  // [T, H]
    kernels::Activations normed;
  };
  // Makes its argument the embeddings of the tokens that run.
  using Embed = std::function<void(kernels::F32View)>;

  // The rows of a forward leave their pairs' keys and values in the pages, and the states or the logs of their spans
  // take the hidden rows.
  void Follow(const ForwardPass& pass, const Rows& rows, const Embed& embed);
  // Runs rows of guesses. Effects: KV. rows.x becomes what logits come from behind final_norm().
  void Guess(const ForwardPass& pass, std::span<const GuessRow> guesses, const Rows& rows, const Embed& embed);
  std::span<const float> final_norm() const { return loaded_->vector(final_norm_); }

  // The states take hidden rows of logs. On top of what the layers did.
  void Advance(const AdvancePass& pass) const;

 private:
  float* StateRow(const SequenceMemory& memory, const ModelSpec& spec, SlotId slot) const;
  int64_t LogOffset(const ModelSpec& spec, int64_t row) const;
  kernels::CopyPiece Piece(float* to, const float* from) const;
  void HandOver(const ForwardPass& pass, const kernels::F32View& before) const;
  void Join(const ForwardPass& pass, const Rows& rows, const Embed& embed) const;

  // Set at construction.
  const MtpPlace place_;
  const int64_t hidden_size_;
  const float norm_eps_;
  MatrixId join_;
  VectorId embedding_norm_;
  VectorId hidden_norm_;
  VectorId mixer_norm_;
  VectorId mlp_norm_;
  VectorId final_norm_;
  std::unique_ptr<Mixer> mixer_;
  std::unique_ptr<Mlp> mlp_;
  // Set by Bind; of the stack that owns this.
  const LoadedWeights* loaded_ = nullptr;
  // Of the forward or the guesses that ran last.
  kernels::F32View hidden_;      // [T, H]: the rows' own.
  kernels::Activations joined_;  // [T, 2 H]
  std::vector<ForwardSpan> spans_;
  std::vector<kernels::KvSpan> kv_spans_;
};

}  // namespace invar::models
