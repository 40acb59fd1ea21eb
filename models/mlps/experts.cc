// Mixture of experts with a shared expert. One fused projection gives the shared expert's gate and up, the router's
// logits and the shared expert's own gate; the chosen experts add to the residual stream, then the shared expert does.
// Both stored forms load for every family: fused 3-D tensors (qwen3_5_moe) and one set of tensors per expert
// (qwen3_next).
#include <fmt/format.h>

#include "models/stack/layer.h"

namespace invar::models {
namespace {

using kernels::Activations;
using kernels::F32View;

struct ExpertsShape {
  int32_t experts = 0;
  int32_t top_k = 0;
  int32_t intermediate = 0;
  int32_t shared_intermediate = 0;
  bool normalize_top_k = true;
};

class Experts final : public Mlp {
 public:
  Experts(const ExpertsShape& shape, const StackPlan& plan, const size_t layer, WeightPlan& weights)
      : experts_(shape), hidden_(plan.hidden) {
    const std::string prefix = plan.LayerPrefix(layer) + "mlp.";
    const std::string shared = prefix + "shared_expert.";
    const int64_t inner = experts_.shared_intermediate;
    const std::vector<RowRange> ranges = {{shared + "gate_proj.weight", 0, inner},
                                          {shared + "up_proj.weight", 0, inner},
                                          {prefix + "gate.weight", 0, experts_.experts},
                                          {prefix + "shared_expert_gate.weight", 0, 1}};
    for (const RowRange& range : ranges) weights.Require(range.tensor, {range.count, hidden_});
    input_ = weights.AddMatrix(ranges, hidden_);
    shared_down_ = weights.AddMatrix(shared + "down_proj.weight", hidden_, inner);
    if (weights.Has(prefix + "experts.gate_up_proj")) {
      DeclareFused(prefix + "experts.", weights);
    } else {
      DeclarePerExpert(prefix + "experts.", weights);
    }
  }

  void Bind(const LoadedWeights& weights) override {
    input_weight_ = weights.matrix(input_);
    shared_down_weight_ = weights.matrix(shared_down_);
    const auto bind = [&weights](const std::vector<MatrixId>& ids, std::vector<kernels::PackedMatrix>& matrices,
                                 std::vector<kernels::PackedMatrix>& residuals) {
      for (const MatrixId id : ids) {
        matrices.push_back(weights.matrix(id).main);
        residuals.push_back(weights.matrix(id).residual);
      }
    };
    bind(gate_up_, gate_up_weights_, gate_up_residuals_);
    bind(down_, down_weights_, down_residuals_);
  }

  void Run(ForwardPass& pass, const Activations& x, const F32View residual) override {
    const Views views = Take(pass.scratch, pass.backend.numerics(), pass.rows);
    const int64_t shared_columns = 2 * int64_t{experts_.shared_intermediate};
    Multiply(pass.backend, x, input_weight_, {}, kernels::LinearMode::kStore, views.input);
    pass.backend.Experts({.x = x,
                          .router_logits = views.input.Columns(shared_columns, experts_.experts),
                          .top_k = experts_.top_k,
                          .normalize_top_k = experts_.normalize_top_k,
                          .gate_up = gate_up_weights_,
                          .down = down_weights_,
                          .out = residual,
                          .gate_up_residual = gate_up_residuals_,
                          .down_residual = down_residuals_});
    pass.backend.SwiGlu(views.input.Columns(0, shared_columns), views.inner);
    Multiply(pass.backend, views.inner, shared_down_weight_, {}, kernels::LinearMode::kStore, views.shared);
    pass.backend.AddSigmoidScaled(views.shared, views.input.Columns(shared_columns + experts_.experts, 1), residual);
  }

  void Measure(Scratch& scratch, const kernels::Numerics& numerics, const int64_t rows) const override {
    Take(scratch, numerics, rows);
  }

  // Counts top_k experts, whichever they are: all have one size.
  void AddWork(const LoadedWeights& weights, StepWork& work) const override {
    AddMatrixWork(weights, input_, work);
    AddMatrixWork(weights, shared_down_, work);
    for (int32_t i = 0; i < experts_.top_k; ++i) {
      AddMatrixWork(weights, gate_up_[static_cast<size_t>(i)], work);
      AddMatrixWork(weights, down_[static_cast<size_t>(i)], work);
    }
  }

 private:
  struct Views {
    F32View input;      // [T, 2 Is + experts + 1]
    Activations inner;  // [T, Is]
    F32View shared;     // [T, hidden]
  };

  Views Take(Scratch& scratch, const kernels::Numerics& numerics, const int64_t rows) const {
    scratch.Reset();
    const int64_t inner = experts_.shared_intermediate;
    return {.input = scratch.F32(rows, 2 * inner + experts_.experts + 1),
            .inner = scratch.Typed(rows, inner, numerics.activations),
            .shared = scratch.F32(rows, hidden_)};
  }

  void DeclareFused(const std::string& prefix, WeightPlan& weights) {
    const int64_t inner = experts_.intermediate;
    weights.Require(prefix + "gate_up_proj", {experts_.experts, 2 * inner, hidden_});
    weights.Require(prefix + "down_proj", {experts_.experts, hidden_, inner});
    for (int64_t e = 0; e < experts_.experts && weights.status().ok(); ++e) {
      gate_up_.push_back(weights.AddMatrix({{prefix + "gate_up_proj", e * 2 * inner, 2 * inner}}, hidden_));
      down_.push_back(weights.AddMatrix({{prefix + "down_proj", e * hidden_, hidden_}}, inner));
    }
  }

  void DeclarePerExpert(const std::string& prefix, WeightPlan& weights) {
    const int64_t inner = experts_.intermediate;
    for (int64_t e = 0; e < experts_.experts && weights.status().ok(); ++e) {
      const std::string expert = prefix + std::to_string(e) + ".";
      weights.Require(expert + "gate_proj.weight", {inner, hidden_});
      weights.Require(expert + "up_proj.weight", {inner, hidden_});
      gate_up_.push_back(
          weights.AddMatrix({{expert + "gate_proj.weight", 0, inner}, {expert + "up_proj.weight", 0, inner}}, hidden_));
      down_.push_back(weights.AddMatrix(expert + "down_proj.weight", hidden_, inner));
    }
  }

  // Set at construction.
  const ExpertsShape experts_;
  const int64_t hidden_;
  MatrixId input_;
  MatrixId shared_down_;
  std::vector<MatrixId> gate_up_;
  std::vector<MatrixId> down_;
  // Set by Bind.
  Weight input_weight_;
  Weight shared_down_weight_;
  std::vector<kernels::PackedMatrix> gate_up_weights_;
  std::vector<kernels::PackedMatrix> down_weights_;
  std::vector<kernels::PackedMatrix> gate_up_residuals_;
  std::vector<kernels::PackedMatrix> down_residuals_;
};

class ExpertsPlan final : public MlpPlan {
 public:
  explicit ExpertsPlan(const ExpertsShape& shape) : shape_(shape) {}

  std::string_view kind() const override { return "experts"; }
  std::unique_ptr<Mlp> Make(const StackPlan& plan, const size_t layer, WeightPlan& weights) const override {
    return std::make_unique<Experts>(shape_, plan, layer, weights);
  }
  std::string Describe() const override {
    return fmt::format("experts: {} of {}, each {} wide, shared expert {} wide", shape_.top_k, shape_.experts,
                       shape_.intermediate, shape_.shared_intermediate);
  }

 private:
  const ExpertsShape shape_;
};

}  // namespace

std::shared_ptr<const MlpPlan> ReadExperts(ConfigReader& config) {
  const ExpertsShape shape = {.experts = config.Size("num_experts"),
                              .top_k = config.Size("num_experts_per_tok"),
                              .intermediate = config.Size("moe_intermediate_size"),
                              .shared_intermediate = config.Size("shared_expert_intermediate_size"),
                              .normalize_top_k = config.Bool("norm_topk_prob", true)};
  if (shape.top_k > shape.experts) {
    config.Fail("num_experts_per_tok", fmt::format("at most num_experts {}", shape.experts),
                fmt::format("{}", shape.top_k));
  }
  return std::make_shared<ExpertsPlan>(shape);
}

}  // namespace invar::models
