// In a forward only keys and values of the head's layer are computed: nobody attends until somebody guesses.
#include "models/stack/mtp_head.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace invar::models {
namespace {

using kernels::Activations;
using kernels::ConstF32View;
using kernels::F32View;

constexpr char kPrefix[] = "mtp.";

// The head's layer as a stack of one.
StackPlan LayerOf(const StackPlan& plan) {
  StackPlan head = plan;
  head.tensor_prefix = kPrefix;
  const auto full = std::find_if(plan.layers.begin(), plan.layers.end(),
                                 [](const LayerPlan& layer) { return layer.mixer->kind() == "full_attention"; });
  Check(full != plan.layers.end(), "a stack with a multi-token head has a layer of full attention");
  head.layers = {{.mixer = full->mixer, .mlp = plan.mtp.mlp, .first_seen = 1}};
  return head;
}

// Columns [begin, begin + count).
Activations Columns(Activations view, const int64_t begin, const int64_t count) {
  view.data = static_cast<std::byte*>(view.data) + begin * kernels::BytesOf(view.dtype);
  view.cols = count;
  return view;
}

Activations FirstRows(Activations view, const int64_t rows) {
  view.rows = rows;
  return view;
}

}  // namespace

std::string WhyNoMtpHead(const StackPlan& plan, const WeightFiles& files) {
  const auto first = files.names().lower_bound(kPrefix);
  if (first == files.names().end() || !first->first.starts_with(kPrefix)) {
    return "the checkpoint has no tensors mtp.*";
  }
  return plan.mtp.why_not;
}

int64_t MtpPageBytes(const StackPlan& plan, const kernels::Backend& backend) {
  const StackPlan head = LayerOf(plan);
  return head.layers[0].mixer->PageBytes(head, backend);
}

MtpHead::MtpHead(const StackPlan& plan, const MtpPlace& place, WeightPlan& weights)
    : place_(place), hidden_size_(plan.hidden), norm_eps_(plan.norm_eps) {
  const StackPlan head = LayerOf(plan);
  const auto norm = [&](const std::string& name) {
    weights.Require(name, {plan.hidden});
    return weights.AddVector({name}, plan.zero_centred_norms);
  };
  const std::string prefix = kPrefix;
  join_ = weights.AddMatrix(prefix + "fc.weight", plan.hidden, int64_t{2} * plan.hidden);
  embedding_norm_ = norm(prefix + "pre_fc_norm_embedding.weight");
  hidden_norm_ = norm(prefix + "pre_fc_norm_hidden.weight");
  mixer_norm_ = norm(head.LayerPrefix(0) + "input_layernorm.weight");
  mlp_norm_ = norm(head.LayerPrefix(0) + "post_attention_layernorm.weight");
  final_norm_ = norm(prefix + "norm.weight");
  const MixerPlace layer{.layer = 0, .page_offset_bytes = place.page_offset_bytes, .attention_layer = 0, .state = {}};
  mixer_ = head.layers[0].mixer->Make(head, layer, weights);
  mlp_ = head.layers[0].mlp->Make(head, 0, weights);
}

void MtpHead::Bind(const LoadedWeights& weights) {
  loaded_ = &weights;
  mixer_->Bind(weights);
  mlp_->Bind(weights);
}

void MtpHead::Measure(Scratch& scratch, const kernels::Numerics& numerics, const int64_t rows) const {
  mixer_->Measure(scratch, numerics, rows);
  mlp_->Measure(scratch, numerics, rows);
}

void MtpHead::TakeMemory(Scratch& memory, const kernels::Numerics& numerics, const int64_t rows) {
  hidden_ = memory.F32(rows, hidden_size_);
  joined_ = memory.Typed(rows, 2 * hidden_size_, numerics.activations);
}

// What every token pays; guesses are extra.
void MtpHead::AddWork(const LoadedWeights& weights, StepWork& work) const { AddMatrixWork(weights, join_, work); }

Activations MtpHead::hidden(const int64_t rows) const {
  return {
      .data = hidden_.data, .dtype = kernels::DType::kF32, .rows = rows, .cols = hidden_size_, .stride = hidden_size_};
}

void MtpHead::Follow(const ForwardPass& pass, const Rows& rows, const Embed& embed) {
  HandOver(pass, rows.x);
  spans_.assign(pass.spans.begin(), pass.spans.end());
  kv_spans_.assign(pass.kv_spans.begin(), pass.kv_spans.end());
  for (size_t i = 0; i < spans_.size(); ++i) {
    kv_spans_[i].kv.body = {};
    kv_spans_[i].first_position = spans_[i].first.value();
    // Pages of a view have no place for full KV: its sequence is not guessed for.
    if (!spans_[i].view.empty()) kv_spans_[i].write_from = INT32_MAX;
    spans_[i].view = {};
  }
  ForwardPass own = pass;
  own.spans = spans_;
  own.kv_spans = kv_spans_;
  own.keys_only = true;
  Join(own, rows, embed);
  pass.backend.RmsNorm(rows.x, loaded_->vector(mixer_norm_), norm_eps_, rows.normed);
  mixer_->Run(own, rows.normed, rows.x);
}

void MtpHead::Guess(const ForwardPass& pass, const std::span<const GuessRow> guesses, const Rows& rows,
                    const Embed& embed) {
  pass.pieces.clear();
  for (size_t i = 0; i < guesses.size(); ++i) {
    const GuessRow& guess = guesses[i];
    Check(guess.from_row < hidden_.rows, "a guess goes on from a row of the one before", guess.from_row);
    pass.pieces.push_back(Piece(rows.x.row(static_cast<int64_t>(i)), guess.from_row < 0
                                                                         ? StateRow(pass.memory, pass.spec, guess.state)
                                                                         : hidden_.row(guess.from_row)));
  }
  pass.backend.Copy(pass.pieces);
  Join(pass, rows, embed);
  ForwardPass own = pass;
  pass.backend.RmsNorm(rows.x, loaded_->vector(mixer_norm_), norm_eps_, rows.normed);
  mixer_->Run(own, rows.normed, rows.x);
  pass.backend.RmsNorm(rows.x, loaded_->vector(mlp_norm_), norm_eps_, rows.normed);
  mlp_->Run(own, rows.normed, rows.x);
  pass.backend.RmsNorm(rows.x, final_norm(), norm_eps_, hidden(pass.rows));
}

void MtpHead::Advance(const AdvancePass& pass) const {
  pass.pieces.clear();
  for (const StateAdvance& advance : pass.advances) {
    const auto row_after = [&](const int32_t rows) {
      return reinterpret_cast<const float*>(advance.log.data() + LogOffset(pass.spec, rows - 1));
    };
    for (const StateCopy& copy : advance.checkpoints) {
      pass.pieces.push_back(Piece(StateRow(pass.memory, pass.spec, copy.to), row_after(copy.after - advance.first)));
    }
    pass.pieces.push_back(Piece(StateRow(pass.memory, pass.spec, advance.state), row_after(advance.rows)));
  }
  pass.backend.Copy(pass.pieces);
}

float* MtpHead::StateRow(const SequenceMemory& memory, const ModelSpec& spec, const SlotId slot) const {
  return reinterpret_cast<float*>(memory.states + int64_t{slot.value()} * spec.state_bytes + place_.state_offset_bytes);
}

int64_t MtpHead::LogOffset(const ModelSpec& spec, const int64_t row) const {
  return spec.StateLogBytes(row) + place_.log_offset_bytes;
}

kernels::CopyPiece MtpHead::Piece(float* const to, const float* const from) const {
  return {to, from, int64_t{sizeof(float)} * hidden_size_};
}

// Every row gets the hidden row before it; what comes behind the span gets its last one, once its first row has what
// lay there.
void MtpHead::HandOver(const ForwardPass& pass, const F32View& before) const {
  pass.pieces.clear();
  for (size_t i = 0; i < pass.spans.size(); ++i) {
    const int64_t begin = pass.kv_spans[i].row_begin;
    pass.pieces.push_back(Piece(before.row(begin), StateRow(pass.memory, pass.spec, pass.spans[i].state)));
    for (int64_t r = 1; r < pass.kv_spans[i].rows; ++r) {
      pass.pieces.push_back(Piece(before.row(begin + r), hidden_.row(begin + r - 1)));
    }
  }
  pass.backend.Copy(pass.pieces);
  pass.pieces.clear();
  for (size_t i = 0; i < pass.spans.size(); ++i) {
    const ForwardSpan& span = pass.spans[i];
    const int64_t begin = pass.kv_spans[i].row_begin;
    const int64_t rows = pass.kv_spans[i].rows;
    for (const StateCopy& copy : span.checkpoints) {
      const int64_t row = begin + (copy.after - span.first) - 1;
      pass.pieces.push_back(Piece(StateRow(pass.memory, pass.spec, copy.to), hidden_.row(row)));
    }
    if (span.state_log.empty()) {
      pass.pieces.push_back(Piece(StateRow(pass.memory, pass.spec, span.state), hidden_.row(begin + rows - 1)));
      continue;
    }
    for (int64_t r = 0; r < rows; ++r) {
      auto* const logged = reinterpret_cast<float*>(span.state_log.data() + LogOffset(pass.spec, r));
      pass.pieces.push_back(Piece(logged, hidden_.row(begin + r)));
    }
  }
  pass.backend.Copy(pass.pieces);
}

// rows.x holds the hidden rows before; it becomes what the layer reads.
void MtpHead::Join(const ForwardPass& pass, const Rows& rows, const Embed& embed) const {
  const Activations joined = FirstRows(joined_, pass.rows);
  const auto norm = [&](const VectorId weight, const int64_t column) {
    pass.backend.RmsNorm(rows.x, loaded_->vector(weight), norm_eps_, Columns(joined, column, hidden_size_));
  };
  norm(hidden_norm_, hidden_size_);
  embed(rows.x);
  norm(embedding_norm_, 0);
  Multiply(pass.backend, joined, loaded_->matrix(join_), {}, kernels::LinearMode::kStore, rows.x);
}

}  // namespace invar::models
