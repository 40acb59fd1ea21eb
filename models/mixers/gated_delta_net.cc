// Gated DeltaNet: one fused projection gives, column after column, the convolution's input (q, k, v), z, b and a; then
// causal convolution, the delta rule, gated norm and the output projection into the residual stream.
// qwen3_next stores the same rows grouped by key head; taking them in our order at load leaves one path here.
// A state log's row is what both read of a token and is dear to compute: convolution input, b and a, before anything
// that depends on other tokens.
#include <fmt/format.h>

#include "models/stack/layer.h"

namespace invar::models {
namespace {

using kernels::Activations;
using kernels::F32View;

constexpr int64_t kFloatBytes = sizeof(float);

struct DeltaNetShape {
  kernels::DeltaShape shape;
  int32_t conv_kernel = 0;

  int32_t key_dim() const { return shape.heads_k * shape.dim_k; }
  int32_t value_dim() const { return shape.heads_v * shape.dim_v; }
  int32_t conv_dim() const { return 2 * key_dim() + value_dim(); }
  int32_t log_row_floats() const { return conv_dim() + 2 * shape.heads_v; }
};

// Rows of the fused projection in the order q heads, k heads, v heads, z heads, b, a.
std::vector<RowRange> SeparateRanges(const DeltaNetShape& net, const int64_t hidden, const std::string& prefix,
                                     WeightPlan& weights) {
  const std::vector<RowRange> ranges = {{prefix + "in_proj_qkv.weight", 0, net.conv_dim()},
                                        {prefix + "in_proj_z.weight", 0, net.value_dim()},
                                        {prefix + "in_proj_b.weight", 0, net.shape.heads_v},
                                        {prefix + "in_proj_a.weight", 0, net.shape.heads_v}};
  for (const RowRange& range : ranges) weights.Require(range.tensor, {range.count, hidden});
  return ranges;
}

// Stored per key head: dim_k rows q, dim_k rows k, r * dim_v rows v, as many z; and r rows b, r rows a.
std::vector<RowRange> GroupedRanges(const DeltaNetShape& net, const int64_t hidden, const std::string& prefix,
                                    WeightPlan& weights) {
  const std::string qkvz = prefix + "in_proj_qkvz.weight";
  const std::string ba = prefix + "in_proj_ba.weight";
  weights.Require(qkvz, {2 * net.key_dim() + 2 * net.value_dim(), hidden});
  weights.Require(ba, {2 * net.shape.heads_v, hidden});
  if (!weights.status().ok()) return {};  // A head count that no tensor bears out is not walked.
  const int64_t values = net.shape.heads_v / net.shape.heads_k;
  const int64_t value_rows = values * net.shape.dim_v;
  const int64_t dim_k = net.shape.dim_k;
  std::vector<RowRange> ranges;
  const auto take = [&](const std::string& tensor, const int64_t group, const int64_t begin, const int64_t count) {
    for (int64_t head = 0; head < net.shape.heads_k; ++head) ranges.push_back({tensor, head * group + begin, count});
  };
  const int64_t group = 2 * dim_k + 2 * value_rows;
  take(qkvz, group, 0, dim_k);
  take(qkvz, group, dim_k, dim_k);
  take(qkvz, group, 2 * dim_k, value_rows);
  take(qkvz, group, 2 * dim_k + value_rows, value_rows);
  take(ba, 2 * values, 0, values);
  take(ba, 2 * values, values, values);
  return ranges;
}

class GatedDeltaNet final : public Mixer {
 public:
  GatedDeltaNet(const DeltaNetShape& net, const StackPlan& plan, const MixerPlace& place, WeightPlan& weights)
      : net_(net), state_(place.state), norm_eps_(plan.norm_eps) {
    const std::string prefix = plan.LayerPrefix(place.layer) + "linear_attn.";
    const bool grouped = weights.Has(prefix + "in_proj_qkvz.weight") && !weights.Has(prefix + "in_proj_qkv.weight");
    input_ = weights.AddMatrix(grouped ? GroupedRanges(net_, plan.hidden, prefix, weights)
                                       : SeparateRanges(net_, plan.hidden, prefix, weights),
                               plan.hidden);
    weights.Require(prefix + "conv1d.weight", {net_.conv_dim(), 1, net_.conv_kernel});
    weights.Require(prefix + "A_log", {net_.shape.heads_v});
    weights.Require(prefix + "dt_bias", {net_.shape.heads_v});
    weights.Require(prefix + "norm.weight", {net_.shape.dim_v});
    conv_id_ = weights.AddVector({prefix + "conv1d.weight"});
    a_log_id_ = weights.AddVector({prefix + "A_log"});
    dt_bias_id_ = weights.AddVector({prefix + "dt_bias"});
    norm_id_ = weights.AddVector({prefix + "norm.weight"});  // The one plain norm of a hybrid: no 1 + w.
    output_ = weights.AddMatrix(prefix + "out_proj.weight", plan.hidden, net_.value_dim());
  }

  void Bind(const LoadedWeights& weights) override {
    input_weight_ = weights.matrix(input_);
    output_weight_ = weights.matrix(output_);
    conv_ = weights.vector(conv_id_);
    a_log_ = weights.vector(a_log_id_);
    dt_bias_ = weights.vector(dt_bias_id_);
    norm_ = weights.vector(norm_id_);
  }

  void Run(ForwardPass& pass, const Activations& x, const F32View residual) override {
    const Views views = Take(pass.scratch, pass.backend.numerics(), pass.rows);
    PointAtStates(pass);
    const int64_t z = net_.conv_dim();
    const int64_t b = z + net_.value_dim();
    const int64_t heads = net_.shape.heads_v;
    Multiply(pass.backend, x, input_weight_, {}, kernels::LinearMode::kStore, views.input);
    WriteLogs(pass, views.input);
    Scan(pass.backend, pass.state_spans, views, views.input.Columns(0, z), views.input.Columns(b, 2 * heads));
    if (pass.keys_only) return;
    ForObservedSpans(pass, [&](const ForwardSpan& span, const int64_t begin, const int64_t rows) {
      pass.host_rows.Reset();
      const kernels::ConstF32View qkv = pass.host_rows.Bring(views.conv.Rows(begin, rows));
      pass.backend.Wait();
      span.layer_observer->Scanned(state_.layer.value(), qkv);
    });
    pass.backend.GatedRmsNorm(views.scan, views.input.Columns(z, net_.value_dim()), norm_, norm_eps_, views.out);
    Multiply(pass.backend, views.out, output_weight_, {}, kernels::LinearMode::kAdd, residual);
  }

  void Advance(AdvancePass& pass) override {
    const Views views = Take(pass.scratch, pass.backend.numerics(), pass.rows);
    int64_t row = 0;
    size_t emitted = 0;
    pass.pieces.clear();
    for (size_t i = 0; i < pass.advances.size(); ++i) {
      const StateAdvance& advance = pass.advances[i];
      PointAt(pass.memory, pass.spec, advance.state, pass.state_spans[i]);
      PointAtCopies(pass.memory, pass.spec, advance.checkpoints, pass.emitted, emitted);
      for (int32_t r = 0; r < advance.rows; ++r) {
        pass.pieces.push_back({views.input.row(row++), advance.log.data() + LogOffset(pass.spec, r), LogRowBytes()});
      }
    }
    pass.backend.Copy(pass.pieces);
    const int64_t conv = net_.conv_dim();
    Scan(pass.backend, pass.state_spans, views, views.input.Columns(0, conv),
         views.input.Columns(conv, int64_t{2} * net_.shape.heads_v));
  }

  void Measure(Scratch& scratch, const kernels::Numerics& numerics, const int64_t rows) const override {
    Take(scratch, numerics, rows);
  }

  void AddWork(const LoadedWeights& weights, StepWork& work) const override {
    AddMatrixWork(weights, input_, work);
    AddMatrixWork(weights, output_, work);
  }
  int64_t InputFlops(const LoadedWeights& weights) const override { return MatrixFlops(weights, input_); }

 private:
  struct Views {
    F32View input;    // [T, conv_dim + value_dim + 2 heads_v]
    F32View conv;     // [T, conv_dim]
    F32View scan;     // [T, value_dim]
    Activations out;  // [T, value_dim]
  };

  Views Take(Scratch& scratch, const kernels::Numerics& numerics, const int64_t rows) const {
    scratch.Reset();
    return {.input = scratch.F32(rows, net_.conv_dim() + net_.value_dim() + 2 * net_.shape.heads_v),
            .conv = scratch.F32(rows, net_.conv_dim()),
            .scan = scratch.F32(rows, net_.value_dim()),
            .out = scratch.Typed(rows, net_.value_dim(), numerics.activations)};
  }

  // The part that depends on the tokens before: forward and advance alike. conv [T, conv_dim], ba [T, 2 heads_v].
  void Scan(kernels::Backend& backend, const std::span<const kernels::StateSpan> spans, const Views& views,
            const F32View& conv, const F32View& ba) const {
    const int64_t heads = net_.shape.heads_v;
    backend.CausalConv({.x = conv, .weight = conv_, .kernel = net_.conv_kernel, .spans = spans, .out = views.conv});
    backend.DeltaScan({.shape = net_.shape,
                       .qkv = views.conv,
                       .b = ba.Columns(0, heads),
                       .a = ba.Columns(heads, heads),
                       .a_log = a_log_,
                       .dt_bias = dt_bias_,
                       .spans = spans,
                       .out = views.scan});
  }

  // --- States: of this layer, in the slots of all spans and checkpoints ---
  void PointAt(const SequenceMemory& memory, const ModelSpec& spec, const SlotId slot, auto& state) const {
    std::byte* const at = memory.states + int64_t{slot.value()} * spec.state_bytes;
    state.conv = reinterpret_cast<float*>(at + state_.conv_offset_bytes);
    state.recurrent = reinterpret_cast<float*>(at + state_.recurrent_offset_bytes);
  }
  void PointAtCopies(const SequenceMemory& memory, const ModelSpec& spec, const std::span<const StateCopy> copies,
                     const std::span<kernels::EmittedState> emitted, size_t& next) const {
    for (const StateCopy& copy : copies) PointAt(memory, spec, copy.to, emitted[next++]);
  }
  void PointAtStates(ForwardPass& pass) const {
    size_t emitted = 0;
    pass.pieces.clear();
    for (size_t i = 0; i < pass.spans.size(); ++i) {
      PointAt(pass.memory, pass.spec, pass.spans[i].state, pass.state_spans[i]);
      PointAtCopies(pass.memory, pass.spec, pass.spans[i].checkpoints, pass.emitted, emitted);
      if (!pass.spans[i].state_log.empty()) WorkOnCopy(pass.spans[i].state_log, pass.state_spans[i], pass.pieces);
    }
    if (!pass.pieces.empty()) pass.backend.Copy(pass.pieces);
  }

  // --- Logs ---
  // The scan of a span with a log runs in the log's head, which every layer uses in turn and so stays in cache.
  void WorkOnCopy(const std::span<std::byte> log, kernels::StateSpan& state,
                  std::vector<kernels::CopyPiece>& pieces) const {
    const int64_t bytes = state_.conv_offset_bytes - state_.recurrent_offset_bytes;
    pieces.push_back({log.data(), state.recurrent, bytes});
    pieces.push_back({log.data() + bytes, state.conv, kFloatBytes * state_.conv_rows * state_.conv_dim});
    state.recurrent = reinterpret_cast<float*>(log.data());
    state.conv = reinterpret_cast<float*>(log.data() + bytes);
  }
  int64_t LogRowBytes() const { return kFloatBytes * net_.log_row_floats(); }
  int64_t LogOffset(const ModelSpec& spec, const int64_t row) const {
    return spec.StateLogBytes(row) + state_.log_offset_bytes;
  }
  void WriteLogs(const ForwardPass& pass, const F32View& input) const {
    const int64_t conv = net_.conv_dim();
    const int64_t ba = int64_t{2} * net_.shape.heads_v;
    pass.pieces.clear();
    for (size_t i = 0; i < pass.spans.size(); ++i) {
      if (pass.spans[i].state_log.empty()) continue;
      for (int32_t r = 0; r < pass.state_spans[i].rows; ++r) {
        const float* const row = input.row(pass.state_spans[i].row_begin + r);
        std::byte* const to = pass.spans[i].state_log.data() + LogOffset(pass.spec, r);
        pass.pieces.push_back({to, row, kFloatBytes * conv});
        pass.pieces.push_back({to + kFloatBytes * conv, row + conv + net_.value_dim(), kFloatBytes * ba});
      }
    }
    if (!pass.pieces.empty()) pass.backend.Copy(pass.pieces);
  }

  // Set at construction.
  const DeltaNetShape net_;
  const RecurrentLayerState state_;
  const float norm_eps_;
  MatrixId input_;
  MatrixId output_;
  VectorId conv_id_;
  VectorId a_log_id_;
  VectorId dt_bias_id_;
  VectorId norm_id_;
  // Set by Bind.
  Weight input_weight_;
  Weight output_weight_;
  std::span<const float> conv_;
  std::span<const float> a_log_;
  std::span<const float> dt_bias_;
  std::span<const float> norm_;
};

class GatedDeltaNetPlan final : public MixerPlan {
 public:
  explicit GatedDeltaNetPlan(const DeltaNetShape& net) : net_(net) {}

  std::string_view kind() const override { return "linear_attention"; }
  int64_t PageBytes(const StackPlan&, const kernels::Backend&) const override { return 0; }
  std::optional<RecurrentLayerState> State() const override {
    RecurrentLayerState state;
    state.heads_v = net_.shape.heads_v;
    state.heads_k = net_.shape.heads_k;
    state.dim_k = net_.shape.dim_k;
    state.dim_v = net_.shape.dim_v;
    state.conv_rows = net_.conv_kernel - 1;
    state.conv_dim = net_.conv_dim();
    state.log_row_floats = net_.log_row_floats();
    return state;
  }
  std::optional<kernels::ShapeLimit> Limit(const StackPlan&, const kernels::Backend& backend) const override {
    std::optional<kernels::ShapeLimit> limit = backend.ConvLimit(net_.conv_kernel);
    if (limit.has_value()) limit->field = "linear_conv_kernel_dim";
    return limit;
  }
  std::unique_ptr<Mixer> Make(const StackPlan& plan, const MixerPlace& place, WeightPlan& weights) const override {
    return std::make_unique<GatedDeltaNet>(net_, plan, place, weights);
  }
  std::string Describe(const StackPlan&) const override {
    return fmt::format("Gated DeltaNet: {} key heads of {}, {} value heads of {}, convolution of {}",
                       net_.shape.heads_k, net_.shape.dim_k, net_.shape.heads_v, net_.shape.dim_v, net_.conv_kernel);
  }

 private:
  const DeltaNetShape net_;
};

}  // namespace

std::shared_ptr<const MixerPlan> ReadGatedDeltaNet(ConfigReader& config) {
  DeltaNetShape net;
  kernels::DeltaShape& shape = net.shape;
  shape.heads_k = config.Size("linear_num_key_heads", 16);
  shape.heads_v = config.Size("linear_num_value_heads", 32);
  shape.dim_k = config.Size("linear_key_head_dim", 128);
  shape.dim_v = config.Size("linear_value_head_dim", 128);
  config.CheckProduct("linear_key_head_dim", shape.dim_k, "linear_num_key_heads", shape.heads_k);
  config.CheckProduct("linear_value_head_dim", shape.dim_v, "linear_num_value_heads", shape.heads_v);
  net.conv_kernel = config.Int("linear_conv_kernel_dim", 2, 4);
  if (shape.heads_v % shape.heads_k != 0) {
    config.Fail("linear_num_value_heads", fmt::format("a multiple of linear_num_key_heads {}", shape.heads_k),
                fmt::format("{}", shape.heads_v));
  }
  return std::make_shared<GatedDeltaNetPlan>(net);
}

}  // namespace invar::models
