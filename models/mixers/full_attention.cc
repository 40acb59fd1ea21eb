// Full attention: q, k, v by one fused projection, norm and rope into the pages, attention over the pages, output
// projection into the residual stream. Gated (hybrids): q_proj's rows hold [query, gate] head by head, and the fused
// projection keeps them so; QkvPrepare and Attention find queries and gates by their head stride.
#include <fmt/format.h>

#include <cmath>

#include "models/stack/layer.h"

namespace invar::models {
namespace {

using kernels::Activations;
using kernels::ConstF32View;
using kernels::F32View;

class FullAttention final : public Mixer {
 public:
  FullAttention(const StackPlan& plan, const MixerPlace& place, WeightPlan& weights)
      : shape_(AttentionShapeOf(plan.attention, plan.layers[place.layer].window)),
        layer_(place.attention_layer),
        first_seen_(plan.layers[place.layer].first_seen),
        gated_(plan.attention.output_gate),
        norm_eps_(plan.norm_eps),
        page_offset_bytes_(place.page_offset_bytes),
        q_columns_(int64_t{shape_.heads} * q_head_stride()),
        kv_columns_(int64_t{shape_.kv_heads} * shape_.head_dim),
        out_columns_(int64_t{shape_.heads} * shape_.head_dim) {
    const std::string prefix = plan.LayerPrefix(place.layer) + "self_attn.";
    weights.Require(prefix + "q_proj.weight", {q_columns_, plan.hidden});
    weights.Require(prefix + "k_proj.weight", {kv_columns_, plan.hidden});
    weights.Require(prefix + "v_proj.weight", {kv_columns_, plan.hidden});
    qkv_ = weights.AddMatrix({{prefix + "q_proj.weight", 0, q_columns_},
                              {prefix + "k_proj.weight", 0, kv_columns_},
                              {prefix + "v_proj.weight", 0, kv_columns_}},
                             plan.hidden);
    if (plan.attention.qkv_bias) {
      weights.Require(prefix + "q_proj.bias", {q_columns_});
      weights.Require(prefix + "k_proj.bias", {kv_columns_});
      weights.Require(prefix + "v_proj.bias", {kv_columns_});
      qkv_bias_id_ = weights.AddVector({prefix + "q_proj.bias", prefix + "k_proj.bias", prefix + "v_proj.bias"});
    }
    if (plan.attention.qk_norm) {
      weights.Require(prefix + "q_norm.weight", {shape_.head_dim});
      weights.Require(prefix + "k_norm.weight", {shape_.head_dim});
      q_norm_id_ = weights.AddVector({prefix + "q_norm.weight"}, plan.zero_centred_norms);
      k_norm_id_ = weights.AddVector({prefix + "k_norm.weight"}, plan.zero_centred_norms);
    }
    output_ = weights.AddMatrix(prefix + "o_proj.weight", plan.hidden, out_columns_);
    if (plan.attention.output_bias) {
      weights.Require(prefix + "o_proj.bias", {plan.hidden});
      output_bias_id_ = weights.AddVector({prefix + "o_proj.bias"});
    }
  }

  void Bind(const LoadedWeights& weights) override {
    qkv_weight_ = weights.matrix(qkv_);
    output_weight_ = weights.matrix(output_);
    const auto bind = [&weights](const std::optional<VectorId>& id) {
      return id.has_value() ? weights.vector(*id) : std::span<const float>();
    };
    qkv_bias_ = bind(qkv_bias_id_);
    output_bias_ = bind(output_bias_id_);
    q_norm_ = bind(q_norm_id_);
    k_norm_ = bind(k_norm_id_);
  }

  void Run(ForwardPass& pass, const Activations& x, const F32View residual) override {
    const Views views = Take(pass.scratch, pass.backend.numerics(), pass.rows);
    PointAtKv(pass);
    const ConstF32View q = views.qkv.Columns(0, q_columns_);
    Multiply(pass.backend, x, qkv_weight_, qkv_bias_, kernels::LinearMode::kStore, views.qkv);
    pass.backend.QkvPrepare({.shape = shape_,
                             .q = q,
                             .q_head_stride = q_head_stride(),
                             .k = views.qkv.Columns(q_columns_, kv_columns_),
                             .v = views.qkv.Columns(q_columns_ + kv_columns_, kv_columns_),
                             .q_norm = q_norm_,
                             .k_norm = k_norm_,
                             .norm_eps = norm_eps_,
                             .cos = pass.cos,
                             .sin = pass.sin,
                             .spans = pass.kv_spans,
                             .q_out = views.q});
    if (pass.keys_only) return;
    Observe(pass, views.q);
    AwaitKv(pass);
    Attend(pass, views);
    Multiply(pass.backend, views.out, output_weight_, output_bias_, kernels::LinearMode::kAdd, residual);
  }

  void Measure(Scratch& scratch, const kernels::Numerics& numerics, const int64_t rows) const override {
    Take(scratch, numerics, rows);
  }

  void AddWork(const LoadedWeights& weights, StepWork& work) const override {
    AddMatrixWork(weights, qkv_, work);
    AddMatrixWork(weights, output_, work);
    work.attention_flops_per_position += 4 * out_columns_;  // q k^T and p v, two each.
  }
  int64_t InputFlops(const LoadedWeights& weights) const override { return MatrixFlops(weights, qkv_); }

 private:
  struct Views {
    F32View qkv;      // [T, q_columns + 2 kv_columns]
    Activations q;    // [T, heads * head_dim], KV type.
    Activations out;  // [T, heads * head_dim]
  };

  void Attend(const ForwardPass& pass, const Views& views) const {
    const ConstF32View gate =
        gated_ ? ConstF32View(views.qkv.Columns(shape_.head_dim, q_columns_ - shape_.head_dim)) : ConstF32View();
    const auto attend = [&](const kernels::AttentionShape& shape, const std::span<const kernels::KvSpan> spans) {
      pass.backend.Attention({.shape = shape,
                              .q = views.q,
                              .spans = spans,
                              .gate = gate,
                              .gate_head_stride = gated_ ? q_head_stride() : 0,
                              .out = views.out});
    };
    if (first_seen_ == 0) return attend(shape_, pass.kv_spans);
    // A window of its own hides from each row what lies before: few rows ask, one a sequence.
    for (const kernels::KvSpan& span : pass.kv_spans) {
      for (int32_t r = 0; r < span.rows; ++r) {
        kernels::KvSpan row = span;
        row.row_begin += r;
        row.rows = 1;
        row.first_position += r;
        kernels::AttentionShape shape = shape_;
        shape.window = row.first_position - first_seen_ + 1;
        Check(shape.window > 0, "a row sees its own slot", row.first_position);
        attend(shape, {&row, 1});
      }
    }
  }

  // Of this layer, in the full KV or in a view.
  void PointAtKv(ForwardPass& pass) const {
    for (size_t i = 0; i < pass.spans.size(); ++i) {
      kernels::KvSpan& span = pass.kv_spans[i];
      span.kv.layer_offset_bytes = page_offset_bytes_;
      if (pass.spans[i].away != nullptr) span.kv.body = {.pages = pass.spans[i].away_pages};
      if (pass.spans[i].view.empty()) continue;
      const ViewLayer& view = pass.spans[i].view[static_cast<size_t>(layer_)];
      span.kv.body = view.body;
      span.first_position = view.slots;
    }
  }

  // As late as can be: it may still be on its way. Those of the layer before go, so they must have been read.
  void AwaitKv(const ForwardPass& pass) const {
    for (size_t i = 0; i < pass.spans.size(); ++i) {
      if (pass.spans[i].away == nullptr) continue;
      pass.backend.Wait();
      pass.kv_spans[i].kv.body.bytes = pass.spans[i].away->Layer(layer_);
    }
  }

  void Observe(const ForwardPass& pass, const Activations& queries) const {
    for (size_t i = 0; i < pass.spans.size(); ++i) {
      if (pass.spans[i].observer == nullptr) continue;
      pass.host_rows.Reset();
      const Activations rows = pass.host_rows.Bring(RowsOf(queries, pass.kv_spans[i].row_begin, pass.kv_spans[i].rows));
      pass.backend.Wait();
      pass.spans[i].observer->Queries(layer_, rows);
    }
  }

  Views Take(Scratch& scratch, const kernels::Numerics& numerics, const int64_t rows) const {
    scratch.Reset();
    return {.qkv = scratch.F32(rows, q_columns_ + 2 * kv_columns_),
            .q = scratch.Typed(rows, out_columns_, numerics.kv),
            .out = scratch.Typed(rows, out_columns_, numerics.activations)};
  }
  int32_t q_head_stride() const { return gated_ ? 2 * shape_.head_dim : shape_.head_dim; }

  // Set at construction.
  const kernels::AttentionShape shape_;
  const int32_t layer_;  // Among those with KV.
  const int32_t first_seen_;
  const bool gated_;
  const float norm_eps_;
  const int64_t page_offset_bytes_;
  const int64_t q_columns_;
  const int64_t kv_columns_;
  const int64_t out_columns_;
  MatrixId qkv_;
  MatrixId output_;
  std::optional<VectorId> qkv_bias_id_;
  std::optional<VectorId> output_bias_id_;
  std::optional<VectorId> q_norm_id_;
  std::optional<VectorId> k_norm_id_;
  // Set by Bind.
  Weight qkv_weight_;
  Weight output_weight_;
  std::span<const float> qkv_bias_;
  std::span<const float> output_bias_;
  std::span<const float> q_norm_;
  std::span<const float> k_norm_;
};

class FullAttentionPlan final : public MixerPlan {
 public:
  std::string_view kind() const override { return "full_attention"; }
  int64_t PageBytes(const StackPlan& plan, const kernels::Backend& backend) const override {
    return backend.KvPageBytes(plan.attention.kv_heads, plan.attention.head_dim);
  }
  std::optional<RecurrentLayerState> State() const override { return std::nullopt; }
  std::optional<kernels::ShapeLimit> Limit(const StackPlan& plan, const kernels::Backend& backend) const override {
    return backend.LimitOf(
        {.heads = plan.attention.heads, .kv_heads = plan.attention.kv_heads, .head_dim = plan.attention.head_dim});
  }
  std::unique_ptr<Mixer> Make(const StackPlan& plan, const MixerPlace& place, WeightPlan& weights) const override {
    return std::make_unique<FullAttention>(plan, place, weights);
  }
  std::string Describe(const StackPlan& plan) const override {
    const AttentionPlan& attention = plan.attention;
    return fmt::format("full attention: {} heads, {} KV heads, head dimension {}, rope {} over {} dimensions{}{}",
                       attention.heads, attention.kv_heads, attention.head_dim, attention.rope.type,
                       attention.rope.inverse_frequencies.size() * 2, attention.qk_norm ? ", norms of q and k" : "",
                       attention.output_gate ? ", gated output" : "");
  }
};

}  // namespace

kernels::AttentionShape AttentionShapeOf(const AttentionPlan& plan, const int32_t window) {
  return {.heads = plan.heads,
          .kv_heads = plan.kv_heads,
          .head_dim = plan.head_dim,
          .window = window,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(plan.head_dim)))};
}

// All its fields are those ReadAttention took: the stack's rope needs them too.
std::shared_ptr<const MixerPlan> ReadFullAttention(ConfigReader&) { return std::make_shared<FullAttentionPlan>(); }

}  // namespace invar::models
