// SwiGLU: gate and up by one fused projection, then down into the residual stream.
#include <fmt/format.h>

#include "models/stack/layer.h"

namespace invar::models {
namespace {

using kernels::Activations;
using kernels::F32View;

struct SwiGluShape {
  int32_t intermediate = 0;
  bool bias = false;
};

class SwiGlu final : public Mlp {
 public:
  SwiGlu(const SwiGluShape& shape, const StackPlan& plan, const size_t layer, WeightPlan& weights)
      : intermediate_(shape.intermediate) {
    const std::string prefix = plan.LayerPrefix(layer) + "mlp.";
    weights.Require(prefix + "gate_proj.weight", {intermediate_, plan.hidden});
    weights.Require(prefix + "up_proj.weight", {intermediate_, plan.hidden});
    gate_up_ = weights.AddMatrix(
        {{prefix + "gate_proj.weight", 0, intermediate_}, {prefix + "up_proj.weight", 0, intermediate_}}, plan.hidden);
    down_ = weights.AddMatrix(prefix + "down_proj.weight", plan.hidden, intermediate_);
    if (shape.bias) {
      weights.Require(prefix + "gate_proj.bias", {intermediate_});
      weights.Require(prefix + "up_proj.bias", {intermediate_});
      weights.Require(prefix + "down_proj.bias", {plan.hidden});
      gate_up_bias_id_ = weights.AddVector({prefix + "gate_proj.bias", prefix + "up_proj.bias"});
      down_bias_id_ = weights.AddVector({prefix + "down_proj.bias"});
    }
  }

  void Bind(const LoadedWeights& weights) override {
    gate_up_weight_ = weights.matrix(gate_up_);
    down_weight_ = weights.matrix(down_);
    if (gate_up_bias_id_.has_value()) gate_up_bias_ = weights.vector(*gate_up_bias_id_);
    if (down_bias_id_.has_value()) down_bias_ = weights.vector(*down_bias_id_);
  }

  void Run(ForwardPass& pass, const Activations& x, const F32View residual) override {
    const Views views = Take(pass.scratch, pass.backend.numerics(), pass.rows);
    Multiply(pass.backend, x, gate_up_weight_, gate_up_bias_, kernels::LinearMode::kStore, views.gate_up);
    pass.backend.SwiGlu(views.gate_up, views.inner);
    Multiply(pass.backend, views.inner, down_weight_, down_bias_, kernels::LinearMode::kAdd, residual);
  }

  void Measure(Scratch& scratch, const kernels::Numerics& numerics, const int64_t rows) const override {
    Take(scratch, numerics, rows);
  }

  void AddWork(const LoadedWeights& weights, StepWork& work) const override {
    AddMatrixWork(weights, gate_up_, work);
    AddMatrixWork(weights, down_, work);
  }

 private:
  struct Views {
    F32View gate_up;    // [T, 2 I]
    Activations inner;  // [T, I]
  };

  Views Take(Scratch& scratch, const kernels::Numerics& numerics, const int64_t rows) const {
    scratch.Reset();
    return {.gate_up = scratch.F32(rows, 2 * intermediate_),
            .inner = scratch.Typed(rows, intermediate_, numerics.activations)};
  }

  // Set at construction.
  const int64_t intermediate_;
  MatrixId gate_up_;
  MatrixId down_;
  std::optional<VectorId> gate_up_bias_id_;
  std::optional<VectorId> down_bias_id_;
  // Set by Bind.
  Weight gate_up_weight_;
  Weight down_weight_;
  std::span<const float> gate_up_bias_;
  std::span<const float> down_bias_;
};

class SwiGluPlan final : public MlpPlan {
 public:
  explicit SwiGluPlan(const SwiGluShape& shape) : shape_(shape) {}

  std::string_view kind() const override { return "swiglu"; }
  std::unique_ptr<Mlp> Make(const StackPlan& plan, const size_t layer, WeightPlan& weights) const override {
    return std::make_unique<SwiGlu>(shape_, plan, layer, weights);
  }
  std::string Describe() const override { return fmt::format("SwiGLU: {} wide", shape_.intermediate); }

 private:
  const SwiGluShape shape_;
};

}  // namespace

std::shared_ptr<const MlpPlan> ReadSwiGlu(ConfigReader& config, const bool bias) {
  return std::make_shared<SwiGluPlan>(SwiGluShape{.intermediate = config.Size("intermediate_size"), .bias = bias});
}

}  // namespace invar::models
