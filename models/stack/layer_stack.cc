// x = embed(token); per layer x += mixer(norm(x)), x += mlp(norm(x)); logits = head(norm(x)) for the wanted rows only.
#include "models/stack/layer_stack.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "kernels/bf16.h"
#include "models/stack/forward_check.h"
#include "models/stack/layer.h"
#include "models/stack/mtp_head.h"

namespace invar::models {
namespace {

using kernels::Activations;
using kernels::ConstF32View;
using kernels::F32View;

// Parts of names that a text model may do without: the vision tower, the multi-token head (mtp_head.h), derived rope
// tables of old files.
const std::vector<std::string>& IgnoredTensorParts() {
  static const std::vector<std::string> parts = {"model.visual.", "visual.", "mtp.", "rotary_emb.inv_freq"};
  return parts;
}

int64_t RoundUp(const int64_t value, const int64_t unit) { return (value + unit - 1) / unit * unit; }

// Lays the layers' memory out, one after another, in pages and slots.
ModelSpec MakeSpec(const StackPlan& plan, const kernels::Backend& backend, std::vector<MixerPlace>& places) {
  constexpr int64_t kStateAlignment = kStateLogAlignment;
  ModelSpec spec;
  spec.architecture = plan.architecture;
  spec.numerics_id = backend.numerics().id();
  spec.vocabulary_size = plan.vocabulary_size;
  spec.hidden = plan.hidden;
  spec.max_sequence_tokens = plan.attention.rope.max_positions;
  int32_t narrowest = 0;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    MixerPlace place{
        .layer = i, .page_offset_bytes = spec.page_bytes, .attention_layer = spec.attention_layers, .state = {}};
    const MixerPlan& mixer = *plan.layers[i].mixer;
    const int64_t page_bytes = mixer.PageBytes(plan, backend);
    spec.page_bytes += page_bytes;
    if (page_bytes > 0) {
      ++spec.attention_layers;
      spec.attention.page_offsets_bytes.push_back(place.page_offset_bytes);
      spec.attention.layers.emplace_back(static_cast<int32_t>(i));
      const int32_t window = plan.layers[i].window;
      if (window > 0 && (narrowest == 0 || window < narrowest)) narrowest = window;
    }
    if (const std::optional<RecurrentLayerState> shapes = mixer.State(); shapes.has_value()) {
      RecurrentLayerState& state = place.state = *shapes;
      state.layer = LayerIndex(static_cast<int32_t>(i));
      state.recurrent_offset_bytes = spec.state_bytes;
      spec.state_bytes += RoundUp(int64_t{4} * state.heads_v * state.dim_k * state.dim_v, kStateAlignment);
      state.conv_offset_bytes = spec.state_bytes;
      spec.state_bytes += RoundUp(int64_t{4} * state.conv_rows * state.conv_dim, kStateAlignment);
      // A log's head is one layer's state, the working copy of a scan that must not touch the real one.
      spec.state_log_head_bytes = std::max(spec.state_log_head_bytes, spec.state_bytes - state.recurrent_offset_bytes);
      state.log_offset_bytes = spec.state_log_row_bytes;
      spec.state_log_row_bytes += RoundUp(int64_t{4} * state.log_row_floats, kStateAlignment);
      spec.recurrent_states.push_back(state);
    }
    places.push_back(place);
  }
  spec.attention.shape = AttentionShapeOf(plan.attention, narrowest);
  spec.attention.inverse_frequencies = plan.attention.rope.inverse_frequencies;
  spec.attention.rope_factor = plan.attention.rope.factor;
  spec.recurrent_layers = static_cast<int32_t>(spec.recurrent_states.size());
  spec.work.kv_bytes_per_position = spec.page_bytes / kernels::kPageTokens;
  return spec;
}

// Lays the head's memory out behind that of the layers.
MtpPlace PlaceHead(const StackPlan& plan, const kernels::Backend& backend, ModelSpec& spec) {
  const MtpPlace place{.page_offset_bytes = spec.page_bytes,
                       .state_offset_bytes = spec.state_bytes,
                       .log_offset_bytes = spec.state_log_row_bytes};
  const int64_t row_bytes = RoundUp(int64_t{sizeof(float)} * plan.hidden, kStateLogAlignment);
  spec.page_bytes += MtpPageBytes(plan, backend);
  spec.state_bytes += row_bytes;
  spec.state_log_row_bytes += row_bytes;
  return place;
}

struct Layer {
  VectorId mixer_norm;
  VectorId mlp_norm;
  std::unique_ptr<Mixer> mixer;
  std::unique_ptr<Mlp> mlp;
};

// All of a stack that has tensors.
struct Declared {
  MatrixId embedding;
  MatrixId head;
  VectorId final_norm;
  std::vector<Layer> layers;
  std::unique_ptr<MtpHead> mtp;  // Null: none.
};

Declared Declare(const StackPlan& plan, const std::vector<MixerPlace>& places, const std::optional<MtpPlace>& head,
                 WeightPlan& weights) {
  const auto norm = [&](const std::string& name) {
    weights.Require(name, {plan.hidden});
    return weights.AddVector({name}, plan.zero_centred_norms);
  };
  Declared stack;
  stack.embedding = weights.AddMatrix(plan.tensor_prefix + "embed_tokens.weight", plan.vocabulary_size, plan.hidden);
  stack.head =
      plan.tied_embeddings ? stack.embedding : weights.AddMatrix("lm_head.weight", plan.vocabulary_size, plan.hidden);
  stack.final_norm = norm(plan.tensor_prefix + "norm.weight");
  for (size_t i = 0; i < plan.layers.size() && weights.status().ok(); ++i) {
    Layer layer{.mixer_norm = norm(plan.LayerPrefix(i) + "input_layernorm.weight"),
                .mlp_norm = norm(plan.LayerPrefix(i) + "post_attention_layernorm.weight"),
                .mixer = nullptr,
                .mlp = nullptr};
    layer.mixer = plan.layers[i].mixer->Make(plan, places[i], weights);
    layer.mlp = plan.layers[i].mlp->Make(plan, i, weights);
    stack.layers.push_back(std::move(layer));
  }
  if (head.has_value()) stack.mtp = std::make_unique<MtpHead>(plan, *head, weights);
  return stack;
}

// Bytes of a slot that belong to no layer's state.
struct Gap {
  int64_t begin = 0;
  int64_t end = 0;
};

std::vector<Gap> StateGaps(const ModelSpec& spec, const std::optional<MtpPlace>& head, const int64_t hidden) {
  std::vector<Gap> gaps;
  int64_t used = 0;
  const auto part = [&](const int64_t begin, const int64_t floats) {
    if (begin > used) gaps.push_back({used, begin});
    used = begin + int64_t{sizeof(float)} * floats;
  };
  for (const RecurrentLayerState& state : spec.recurrent_states) {
    part(state.recurrent_offset_bytes, int64_t{state.heads_v} * state.dim_k * state.dim_v);
    part(state.conv_offset_bytes, int64_t{state.conv_rows} * state.conv_dim);
  }
  if (head.has_value()) part(head->state_offset_bytes, hidden);
  part(spec.state_bytes, 0);
  return gaps;
}

class LayerStack final : public Model {
 public:
  // `why_no_head`: empty where the multi-token head is to be served.
  LayerStack(const StackPlan& plan, const ModelOptions& options, kernels::Backend& backend, WeightPlan& weights,
             const std::string& why_no_head)
      : backend_(backend),
        spec_(MakeSpec(plan, backend, places_)),
        head_place_(why_no_head.empty() ? std::optional(PlaceHead(plan, backend, spec_)) : std::nullopt),
        state_gaps_(StateGaps(spec_, head_place_, plan.hidden)),
        hidden_(plan.hidden),
        norm_eps_(plan.norm_eps),
        rope_(plan.attention.rope),
        max_rows_(options.max_batch_tokens),
        max_logits_rows_(options.max_logits_rows),
        stack_(Declare(plan, places_, head_place_, weights)),
        host_rows_(backend) {
    spec_.mtp = {.why_not = why_no_head, .rows_max = options.max_logits_rows};
  }

  // Takes the weights and all memory a forward needs. Errors: RESOURCE_EXHAUSTED.
  Status Bind(LoadedWeights weights) {
    weights_ = std::move(weights);
    spec_.fingerprint = weights_.fingerprint();
    Scratch measure;
    measure.F32(max_rows_, hidden_);  // Embed's.
    for (Layer& layer : stack_.layers) {
      layer.mixer->Bind(weights_);
      layer.mlp->Bind(weights_);
      layer.mixer->Measure(measure, backend_.numerics(), max_rows_);
      layer.mlp->Measure(measure, backend_.numerics(), max_rows_);
      const int64_t flops_before = spec_.work.matmul_flops;
      layer.mixer->AddWork(weights_, spec_.work);
      layer.mlp->AddWork(weights_, spec_.work);
      spec_.layer_flops.push_back(
          {.all = spec_.work.matmul_flops - flops_before, .input = layer.mixer->InputFlops(weights_)});
    }
    if (stack_.mtp != nullptr) {
      stack_.mtp->Bind(weights_);
      stack_.mtp->Measure(measure, backend_.numerics(), max_rows_);
      stack_.mtp->AddWork(weights_, spec_.work);
    }
    const int64_t flops_before_head = spec_.work.matmul_flops;
    AddMatrixWork(weights_, stack_.head, spec_.work);
    spec_.work.head_flops = spec_.work.matmul_flops - flops_before_head;
    if (Status s = Hold(measure, scratch_); !s.ok()) return s;
    const auto frequencies = static_cast<int64_t>(rope_.inverse_frequencies.size());
    const auto take = [&](Scratch& memory) {
      residual_ = memory.F32(max_rows_, hidden_);
      normed_ = memory.Typed(max_rows_, hidden_, backend_.numerics().activations);
      cos_ = memory.F32(max_rows_, frequencies);
      sin_ = memory.F32(max_rows_, frequencies);
      last_ = memory.F32(max_logits_rows_, hidden_);
      last_normed_ = memory.Typed(max_logits_rows_, hidden_, backend_.numerics().activations);
      logits_ = memory.F32(max_logits_rows_, spec_.vocabulary_size);
      if (stack_.mtp != nullptr) stack_.mtp->TakeMemory(memory, backend_.numerics(), max_rows_);
    };
    Scratch measure_fixed;
    take(measure_fixed);
    if (Status s = Hold(measure_fixed, fixed_); !s.ok()) return s;
    take(fixed_);
    ids_.reserve(static_cast<size_t>(max_rows_));
    positions_.reserve(static_cast<size_t>(max_rows_));
    return OkStatus();
  }

  const ModelSpec& spec() const override { return spec_; }
  kernels::Backend* backend() const override { return &backend_; }

  ConstF32View Forward(const SequenceMemory& memory, const std::span<const ForwardSpan> spans) override {
    const ConstF32View logits = host_rows_.Bring(StartForward(memory, spans));
    backend_.Wait();
    return logits;
  }

  ConstF32View StartForward(const SequenceMemory& memory, const std::span<const ForwardSpan> spans) override {
    const FlushDenormals flush;  // The caller computes too, with the same rounding as the pool's workers.
    CheckSpans(spec_, spans);
    GatherSpans(memory, spans);
    const auto rows = static_cast<int64_t>(ids_.size());
    if (rows == 0) return Rows(logits_, 0);
    const F32View x = Rows(residual_, rows);
    const Activations normed = Rows(normed_, rows);
    ForwardPass pass = PassOf(memory, spans);
    Embed(x);
    for (size_t i = 0; i < stack_.layers.size(); ++i) {
      const Layer& layer = stack_.layers[i];
      backend_.RmsNorm(x, weights_.vector(layer.mixer_norm), norm_eps_, normed);
      Observe(pass, static_cast<int32_t>(i), x, normed);
      layer.mixer->Run(pass, normed, x);
      backend_.RmsNorm(x, weights_.vector(layer.mlp_norm), norm_eps_, normed);
      layer.mlp->Run(pass, normed, x);
    }
    const ConstF32View logits = Head(spans, x);
    if (stack_.mtp != nullptr) {
      backend_.RmsNorm(x, weights_.vector(stack_.final_norm), norm_eps_, stack_.mtp->hidden(rows));
      stack_.mtp->Follow(pass, {x, normed}, [this](const F32View& out) { Embed(out); });
    }
    return logits;
  }

  void ForwardPart(const SequenceMemory& memory, const ForwardSpan& span, const StackPart& part) override {
    const FlushDenormals flush;
    CheckSpans(spec_, {&span, 1});
    CheckPart(spec_, span, part);
    GatherSpans(memory, {&span, 1});
    const auto rows = static_cast<int64_t>(ids_.size());
    const F32View x = Rows(residual_, rows);
    const Activations normed = Rows(normed_, rows);
    ForwardPass pass = PassOf(memory, {&span, 1});
    if (part.residual.data != nullptr) {
      CopyRows(part.residual, x);
    } else if (part.inputs.data == nullptr) {
      Embed(x);
    }
    for (int32_t i = part.begin; i < part.end; ++i) {
      const Layer& layer = stack_.layers[static_cast<size_t>(i)];
      if (part.inputs.data != nullptr) {
        SendRounded(part.inputs, normed);
      } else {
        backend_.RmsNorm(x, weights_.vector(layer.mixer_norm), norm_eps_, normed);
      }
      pass.keys_only = i + 1 == part.end;
      layer.mixer->Run(pass, normed, x);
      if (pass.keys_only) break;
      backend_.RmsNorm(x, weights_.vector(layer.mlp_norm), norm_eps_, normed);
      layer.mlp->Run(pass, normed, x);
    }
    backend_.Wait();
  }

  ConstF32View Guess(const SequenceMemory& memory, const std::span<const GuessRow> guesses) override {
    Check(stack_.mtp != nullptr, "a model that guesses has a multi-token head", spec_.mtp.why_not);
    const auto rows = static_cast<int64_t>(guesses.size());
    Check(rows <= max_logits_rows_ && rows <= max_rows_, "guesses fit the limit given at load", rows);
    if (rows == 0) return Rows(logits_, 0);
    const FlushDenormals flush;
    CheckGuesses(spec_, guesses);
    guess_spans_.clear();
    for (const GuessRow& guess : guesses) {
      guess_spans_.push_back(
          {.tokens = {&guess.token, 1}, .first = guess.position, .pages = guess.pages, .state = guess.state});
    }
    GatherSpans(memory, guess_spans_);
    const F32View x = Rows(residual_, rows);
    stack_.mtp->Guess(PassOf(memory, guess_spans_), guesses, {x, Rows(normed_, rows)},
                      [this](const F32View& out) { Embed(out); });
    const ConstF32View logits = host_rows_.Bring(Logits(x, stack_.mtp->final_norm()));
    backend_.Wait();
    return logits;
  }

  void Advance(const SequenceMemory& memory, const std::span<const StateAdvance> advances) override {
    if (spec_.state_bytes == 0 || advances.empty()) return;
    const FlushDenormals flush;
    CheckAdvances(spec_, advances);
    AdvancePass pass{.backend = backend_,
                     .scratch = scratch_,
                     .memory = memory,
                     .advances = advances,
                     .rows = GatherAdvances(memory, advances),
                     .state_spans = state_spans_,
                     .emitted = emitted_,
                     .spec = spec_,
                     .pieces = pieces_};
    Check(pass.rows <= max_rows_, "rows to go over fit the limit given at load", pass.rows, max_rows_);
    for (const Layer& layer : stack_.layers) layer.mixer->Advance(pass);
    if (stack_.mtp != nullptr) stack_.mtp->Advance(pass);
    backend_.Wait();
  }

 private:
  // Of the gathered spans, turned to their positions.
  ForwardPass PassOf(const SequenceMemory& memory, const std::span<const ForwardSpan> spans) {
    const auto rows = static_cast<int64_t>(ids_.size());
    const F32View cos = Rows(cos_, rows);
    const F32View sin = Rows(sin_, rows);
    backend_.RopeAngles(positions_, rope_.inverse_frequencies, rope_.factor, cos, sin);
    return {.backend = backend_,
            .scratch = scratch_,
            .memory = memory,
            .spans = spans,
            .rows = rows,
            .cos = cos,
            .sin = sin,
            .kv_spans = kv_spans_,
            .state_spans = state_spans_,
            .emitted = emitted_,
            .spec = spec_,
            .host_rows = host_rows_,
            .pieces = pieces_};
  }

  static void Observe(const ForwardPass& pass, const int32_t layer, const ConstF32View& x, const Activations& normed) {
    ForObservedSpans(pass, [&](const ForwardSpan& span, const int64_t begin, const int64_t rows) {
      pass.host_rows.Reset();
      const ConstF32View residual = pass.host_rows.Bring(x.Rows(begin, rows));
      const Activations norm = pass.host_rows.Bring(RowsOf(normed, begin, rows));
      pass.backend.Wait();
      span.layer_observer->Inputs(layer, residual, norm);
    });
  }

  // As a norm would have stored it.
  void SendRounded(const ConstF32View& from, const Activations& to) {
    Activations rounded = to;
    if (backend_.rows_are_apart()) rounded.data = host_rows_.Take(to.rows * to.stride * kernels::BytesOf(to.dtype));
    for (int64_t row = 0; row < to.rows; ++row) {
      if (to.dtype == kernels::DType::kF32) {
        std::copy_n(from.row(row), to.cols, reinterpret_cast<float*>(rounded.row_bytes(row)));
      } else {
        auto* const out = reinterpret_cast<uint16_t*>(rounded.row_bytes(row));
        std::transform(from.row(row), from.row(row) + to.cols, out, kernels::Bf16FromFloat);
      }
    }
    if (!backend_.rows_are_apart()) return;
    pieces_.clear();
    for (int64_t row = 0; row < to.rows; ++row) {
      pieces_.push_back({to.row_bytes(row), rounded.row_bytes(row), to.cols * kernels::BytesOf(to.dtype)});
    }
    backend_.Copy(pieces_);
  }

  void CopyRows(const ConstF32View& from, const F32View& to) {
    pieces_.clear();
    for (int64_t row = 0; row < to.rows; ++row) {
      pieces_.push_back({to.row(row), from.row(row), to.cols * int64_t{sizeof(float)}});
    }
    backend_.Copy(pieces_);
  }

  // As much as `measure` took.
  Status Hold(const Scratch& measure, Scratch& to) {
    StatusOr<Scratch> held = Scratch::Of(backend_, measure.peak_bytes());
    if (!held.ok()) return held.status();
    to = *std::move(held);
    return OkStatus();
  }

  static F32View Rows(const F32View& view, const int64_t rows) { return view.Rows(0, rows); }
  static Activations Rows(Activations view, const int64_t rows) {
    view.rows = rows;
    return view;
  }

  void Embed(const F32View& x) {
    const Weight& table = weights_.matrix(stack_.embedding);
    backend_.Embed(table.main, ids_, x);
    if (!table.has_residual()) return;
    scratch_.Reset();
    const F32View rest = scratch_.F32(x.rows, x.cols);
    backend_.Embed(table.residual, ids_, rest);
    backend_.Add(rest, x);
  }

  // Lays the spans out as rows of one batch.
  void GatherSpans(const SequenceMemory& memory, const std::span<const ForwardSpan> spans) {
    host_rows_.Reset();
    ids_.clear();
    positions_.clear();
    pages_.clear();
    kv_spans_.resize(spans.size());
    state_spans_.resize(spans.size());
    ForgetCheckpoints(spans);
    size_t total_pages = 0;
    for (const ForwardSpan& span : spans) total_pages += span.pages.size();
    pages_.reserve(total_pages);  // Before views of it are taken below.
    for (size_t i = 0; i < spans.size(); ++i) {
      const ForwardSpan& span = spans[i];
      const auto rows = static_cast<int32_t>(span.tokens.size());
      const size_t first_page = pages_.size();
      for (const PageId page : span.pages) pages_.push_back(page.value());
      const auto row_begin = static_cast<int32_t>(ids_.size());
      kv_spans_[i] = {.row_begin = row_begin,
                      .rows = rows,
                      .first_position = span.first.value(),
                      .kv = {.arena = memory.pages,
                             .page_stride_bytes = spec_.page_bytes,
                             .layer_offset_bytes = 0,
                             .pages = std::span<const int32_t>(pages_).subspan(first_page)},
                      .write_from = span.kv_from.value()};
      state_spans_[i] = {.row_begin = row_begin, .rows = rows};
      GatherCheckpoints(memory, span.first, span.checkpoints, state_spans_[i]);
      for (int32_t j = 0; j < rows; ++j) {
        const int32_t id = span.tokens[static_cast<size_t>(j)].value();
        Check(id >= 0 && id < spec_.vocabulary_size, "token ids lie in the vocabulary", id);
        ids_.push_back(id);
        positions_.push_back(span.first.value() + j);
      }
    }
    Check(static_cast<int64_t>(ids_.size()) <= max_rows_, "a batch fits the limit given at load", ids_.size(),
          max_rows_);
  }

  // Lays the logged rows out as one batch; gives their number.
  int64_t GatherAdvances(const SequenceMemory& memory, const std::span<const StateAdvance> advances) {
    state_spans_.resize(advances.size());
    ForgetCheckpoints(advances);
    int32_t rows = 0;
    for (size_t i = 0; i < advances.size(); ++i) {
      state_spans_[i] = {.row_begin = rows, .rows = advances[i].rows};
      GatherCheckpoints(memory, advances[i].first, advances[i].checkpoints, state_spans_[i]);
      rows += advances[i].rows;
    }
    return rows;
  }

  // Makes room for those of `work`, so that views of them stay.
  template <typename Work>
  void ForgetCheckpoints(const std::span<const Work> work) {
    emitted_.clear();
    size_t total = 0;
    for (const Work& one : work) total += one.checkpoints.size();
    emitted_.reserve(total);
  }

  // Layers write their parts of a slot; what lies between them is zeroed here, so that equal states are equal bytes.
  void GatherCheckpoints(const SequenceMemory& memory, const Position first,
                         const std::span<const StateCopy> checkpoints, kernels::StateSpan& state_span) {
    if (spec_.state_bytes == 0) return;
    const size_t begin = emitted_.size();
    for (const StateCopy& copy : checkpoints) {
      emitted_.push_back({.rows = copy.after - first});
      std::byte* slot = memory.states + int64_t{copy.to.value()} * spec_.state_bytes;
      for (const Gap& gap : state_gaps_) std::memset(slot + gap.begin, 0, static_cast<size_t>(gap.end - gap.begin));
    }
    state_span.emit = std::span<const kernels::EmittedState>(emitted_).subspan(begin);
  }

  // Only the wanted rows pay for the final norm and the head.
  ConstF32View Head(const std::span<const ForwardSpan> spans, const F32View& x) {
    int64_t wanted = 0;
    pieces_.clear();
    for (size_t i = 0; i < spans.size(); ++i) {
      const int64_t end = kv_spans_[i].row_begin + kv_spans_[i].rows;
      for (int64_t row = end - spans[i].logits_rows; row < end; ++row) {
        Check(wanted < max_logits_rows_, "wanted logits fit the limit given at load", max_logits_rows_);
        pieces_.push_back({last_.row(wanted++), x.row(row), hidden_ * int64_t{sizeof(float)}});
      }
    }
    backend_.Copy(pieces_);
    return Logits(Rows(last_, wanted), weights_.vector(stack_.final_norm));
  }

  ConstF32View Logits(const ConstF32View& x, const std::span<const float> norm) {
    const F32View logits = Rows(logits_, x.rows);
    if (x.rows == 0) return logits;
    const Activations normed = Rows(last_normed_, x.rows);
    backend_.RmsNorm(x, norm, norm_eps_, normed);
    Multiply(backend_, normed, weights_.matrix(stack_.head), {}, kernels::LinearMode::kStore, logits);
    return logits;
  }

  // Set at construction.
  kernels::Backend& backend_;
  std::vector<MixerPlace> places_;
  ModelSpec spec_;
  const std::optional<MtpPlace> head_place_;
  const std::vector<Gap> state_gaps_;
  const int64_t hidden_;
  const float norm_eps_;
  const RopePlan rope_;
  const int64_t max_rows_;
  const int64_t max_logits_rows_;
  Declared stack_;
  // Set by Bind.
  LoadedWeights weights_;
  // Engine thread only: memory of the forward that runs.
  Scratch scratch_;
  Scratch fixed_;
  F32View residual_;
  Activations normed_;
  F32View cos_;
  F32View sin_;
  F32View last_;
  Activations last_normed_;
  F32View logits_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> pages_;
  std::vector<kernels::KvSpan> kv_spans_;
  std::vector<kernels::StateSpan> state_spans_;
  std::vector<kernels::EmittedState> emitted_;
  std::vector<ForwardSpan> guess_spans_;
  std::vector<kernels::CopyPiece> pieces_;
  HostRows host_rows_;
};

}  // namespace

std::vector<RequiredTensor> ListTensors(const StackPlan& plan) {
  WeightPlan weights;
  std::vector<MixerPlace> places(plan.layers.size());
  for (size_t i = 0; i < places.size(); ++i) places[i].layer = i;
  Declare(plan, places, plan.mtp.expected ? std::optional(MtpPlace{}) : std::nullopt, weights);
  return weights.required();
}

namespace {

Status CheckBackendTakes(const StackPlan& plan, const std::string& folder, const kernels::Backend& backend) {
  for (const LayerPlan& layer : plan.layers) {
    const std::optional<kernels::ShapeLimit> limit = layer.mixer->Limit(plan, backend);
    if (!limit.has_value()) continue;
    return InvalidArgument(fmt::format("{}/config.json: {}{}: wanted {} on the {} backend, found {}", folder,
                                       plan.config_section, limit->field, limit->wanted, backend.name(), limit->found),
                           std::string(limit->field));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Model>> MakeLayerStack(const StackPlan& plan, const std::string& config_text,
                                                const ModelOptions& options, kernels::Backend& backend) {
  Check(options.max_batch_tokens > 0 && options.max_logits_rows > 0, "limits of a forward are positive",
        options.max_batch_tokens, options.max_logits_rows);
  if (Status s = CheckBackendTakes(plan, options.folder, backend); !s.ok()) return s;
  StatusOr<WeightFiles> files = WeightFiles::Open(options.folder);
  if (!files.ok()) return files.status();
  WeightPlan weights(*files);
  const std::string why_no_head =
      options.mtp_head ? WhyNoMtpHead(plan, *files) : "it is not to be served (engine.speculation.mtp_head)";
  auto stack = std::make_unique<LayerStack>(plan, options, backend, weights, why_no_head);
  if (!weights.status().ok()) return weights.status();
  std::vector<std::string> unused;
  if (Status s = weights.CheckAllUsed(plan.tensor_prefix, IgnoredTensorParts(), unused); !s.ok()) return s;
  if (!unused.empty()) {
    const size_t shown = std::min<size_t>(unused.size(), 5);
    Logger("models")->info("{}: {} tensors are not used: {}{}", options.folder, unused.size(),
                           fmt::join(unused.begin(), unused.begin() + static_cast<ptrdiff_t>(shown), ", "),
                           shown < unused.size() ? ", ..." : "");
  }
  StatusOr<LoadedWeights> loaded = LoadWeights(weights, config_text, options, backend);
  if (!loaded.ok()) return loaded.status();
  if (Status s = stack->Bind(*std::move(loaded)); !s.ok()) return s;
  return std::unique_ptr<Model>(std::move(stack));
}

}  // namespace invar::models
