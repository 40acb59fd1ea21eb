// Qwen3-Next: Qwen3.5's arithmetic with grouped DeltaNet projections, a flat older configuration, and experts in the
// layers that mlp_only_layers and decoder_sparse_step leave to them.
#include <algorithm>

#include "models/stack/stack_plan.h"

namespace invar::models {

StatusOr<StackPlan> ReadQwen3Next(ConfigReader config) {
  StackPlan plan{.architecture = config.String("model_type"), .tensor_prefix = "model."};
  ReadHybrid(config, plan);
  plan.tied_embeddings = config.Bool("tie_word_embeddings", false);

  const std::vector<int32_t> dense = config.Ints("mlp_only_layers");
  const int32_t step = config.Int("decoder_sparse_step", 1, 1);
  const bool has_experts = config.Int("num_experts", 0) > 0;
  const std::shared_ptr<const MlpPlan> experts = has_experts ? ReadExperts(config) : nullptr;
  std::shared_ptr<const MlpPlan> swiglu;  // Read where a layer needs it: its field may be missing elsewhere.
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    const bool sparse =
        has_experts && (index + 1) % step == 0 && std::find(dense.begin(), dense.end(), index) == dense.end();
    if (!sparse && swiglu == nullptr) swiglu = ReadSwiGlu(config, false);
    plan.layers[i].mlp = sparse ? experts : swiglu;
  }
  for (const int32_t layer : dense) {
    if (layer >= static_cast<int32_t>(plan.layers.size())) {
      config.Fail("mlp_only_layers", "layers below num_hidden_layers", std::to_string(layer));
    }
  }
  ReadMtp(config, "num_nextn_predict_layers", has_experts ? experts : swiglu, plan);
  if (!config.status().ok()) return config.status();
  return plan;
}

}  // namespace invar::models
