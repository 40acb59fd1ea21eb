// Llama 2 and 3 (and SmolLM2, which is one): dense, optional biases, llama3 rope scaling.
#include "models/stack/stack_plan.h"

namespace invar::models {

StatusOr<StackPlan> ReadLlama(ConfigReader config) {
  StackPlan plan{.architecture = config.String("model_type"), .tensor_prefix = "model."};
  ReadCommon(config, plan);
  ReadAttention(config, 1.0, plan);
  config.Expect("use_qk_norm", false);
  plan.attention.qkv_bias = plan.attention.output_bias = config.Bool("attention_bias", false);
  plan.tied_embeddings = config.Bool("tie_word_embeddings", false);
  SetMlps(ReadSwiGlu(config, config.Bool("mlp_bias", false)), plan);
  config.Refuse("sliding_window", "llama has none");
  CheckLayerTypesAre(config, plan, "full_attention");
  if (!config.status().ok()) return config.status();
  return plan;
}

}  // namespace invar::models
